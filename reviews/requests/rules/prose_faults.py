"""The faults that prose may plan, each with the words that plan it, and what a plan has to speak of."""

from __future__ import annotations

import re
from typing import NamedTuple

from specs.trail.requested_review import IssueSeverity

_HELD = (
    r"(?:the\s+|our\s+|this\s+|a\s+)?(?:held-?\s?out|test|benchmark)(?:\s+"
    r"(?:set|split|data|items|accuracy|score|results?|loss|performance))?\b"
)
_LATER = r"(?:and|then|before|to)\s+(?:then\s+|we\s+)?(?:report|evaluat|test|measur|compar|score)\w*"
_SELECTS = r"(?:pick|choos|chose|select|keep|kept|take|rank)\w*"


def _gap(most: int) -> str:
    """Return a pattern of words between two others, which name no other split and begin no later step."""
    return rf"(?:(?!\b(?:validation|dev|development|training)\b|\b{_LATER}).){{0,{most}}}?"


def _by(words: str) -> str:
    return (
        rf"\b(?:on|by|with|using|from|per|against|according\s+to|via)\s+(?:the\s+|its\s+|their\s+)?"
        rf"(?:best\s+|highest\s+)?{words}"
    )


class Rule(NamedTuple):
    """A fault, and the words that plan it."""

    id: str
    severity: IssueSeverity
    words: str
    """Pattern over one sentence in small letters."""
    statement: str
    fix: str
    says_no: bool = False
    """Whether its words are negative themselves ("without a baseline"), so that only a negation before them counts."""


RULES: tuple[Rule, ...] = (
    Rule(
        "selection_on_heldout",
        "CRITICAL",
        rf"\b{_SELECTS}\b{_gap(70)}\b"
        rf"(?:checkpoint|model|epoch|step|run|variant|adapter|version|seed|configuration)s?\b"
        rf"{_gap(40)}{_by(_HELD)}"
        rf"|\b(?:checkpoint|model|epoch|variant|run)s?\b.{{0,20}}\b(?:is|are|gets?|was|were)\s+"
        rf"(?:chosen|selected|picked|kept|taken)\b{_gap(30)}{_by(_HELD)}"
        rf"|\b(?:on|by|using)\s+{_HELD},?\s+(?:we\s+|i\s+)?{_SELECTS}\b{_gap(40)}\b"
        rf"(?:checkpoint|model|epoch|variant|run)s?\b"
        rf"|\b(?:checkpoint|model|epoch|variant|run)\s+(?:with|that\s+(?:has|reaches|gets|scores))\s+(?:the\s+)?"
        rf"(?:best|highest|lowest)\s+(?:score\s+on\s+)?{_HELD}"
        rf"|\bearly[\s-]stop\w*\b{_gap(30)}{_by(_HELD)}",
        "a checkpoint or model is chosen on the held-out split, which then measures the choice and not the model",
        "Choose on a validation split; read the held-out split once, for the registered comparison.",
    ),
    Rule(
        "tuning_on_heldout",
        "CRITICAL",
        rf"\b(?:tun|optimi[sz]|adjust|sweep|search|calibrat|refin)\w*\b{_gap(60)}\b"
        rf"(?:hyper-?parameters?|learning\s+rates?|prompts?|thresholds?|temperatures?|settings?|rubric|epochs?)"
        rf"\b{_gap(40)}{_by(_HELD)}",
        "settings are tuned on the held-out split, so its result is too good",
        "Tune on a validation split that is not compared on.",
    ),
    Rule(
        "training_on_test",
        "CRITICAL",
        rf"\b(?:train|fine-?tun|pre-?train)\w*\s+(?:\w+\s+){{0,2}}?(?:on|with)\s+(?:\w+\s+){{0,3}}?"
        rf"(?:held-?out|test|benchmark|evaluation)\s+(?:set|split|data|items|questions|prompts|examples)\b"
        rf"|\b(?:add|includ|mix|merg|put)\w*\b{_gap(20)}\b(?:held-?out|test|benchmark|evaluation)\s+"
        rf"(?:set|split|data|items|questions|prompts|examples)\b{_gap(25)}\b(?:to|in|into|with)\s+"
        rf"(?:the\s+)?train",
        "held-out data are trained on",
        "Keep the held-out split out of every training stage, near duplicates included.",
    ),
    Rule(
        "optional_stopping",
        "HIGH",
        r"\b(?:until|till|as\s+soon\s+as|once|when)\b.{0,50}\b(?:significan\w*|p\s*"
        r"(?:<|is\s+below|drops\s+below)\s*0?\.\d+)"
        r".{0,40}\b(?:stop|end|finish)\w*"
        r"|\b(?:stop|end)\w*\b.{0,30}\b(?:as\s+soon\s+as|once|when)\b.{0,50}\b(?:significan\w*|p\s*"
        r"(?:<|is\s+below|drops\s+below)\s*0?\.\d+)"
        r"|\b(?:add|run|collect|sampl|repeat|rerun|train|test|continu)\w*\b.{0,60}\b(?:until|till)\b.{0,40}\b"
        r"(?:significan\w*|p\s*(?:<|is\s+below|drops\s+below)\s*0?\.\d+)",
        "sampling stops when the test is significant: with enough looks any null hypothesis is rejected",
        "Register n beforehand and test once, or register a sequential test.",
    ),
    Rule(
        "peeking",
        "HIGH",
        r"\b(?:check|look\s+at|peek|monitor|inspect|watch|track|evaluat)\w*\b.{0,40}\b(?:held-?out|test)\s+"
        r"(?:results?|scores?|accurac\w+|set|split|items|metrics?)\b.{0,40}\b"
        r"(?:every|after\s+each|during\s+training|while\s+training|as\s+we\s+go|daily|at\s+each|each\s+epoch|from\s+time\s+to\s+time)",
        "the held-out split is looked at again and again while decisions are still open",
        "Evaluate the held-out split as often as is registered, and count it.",
    ),
    Rule(
        "metric_after_results",
        "CRITICAL",
        r"\b(?:choos|chose|pick|decid|select|report|switch|chang|settl)\w*\b.{0,40}\b"
        r"(?:metric|measure|benchmark|outcome|score)s?\b.{0,40}"
        r"\b(?:after\s+(?:seeing|the\s+results|we\s+see|looking|training|the\s+run)|once\s+"
        r"(?:we|the\s+results)|depending\s+on|based\s+on\s+(?:the\s+)?results|that\s+"
        r"(?:shows?|looks?|improves?|favou?rs?|moves?|works?)|with\s+the\s+(?:largest|best|biggest|strongest))",
        "the metric is chosen after the results",
        "Register one primary metric before any data; report the others as what they are.",
    ),
    Rule(
        "criterion_after_results",
        "HIGH",
        r"\b(?:decid|set|defin|fix|choos|adjust|lower|formulat)\w*\b.{0,40}\b"
        r"(?:threshold|success\s+criteri\w+|minimum\s+effect|alpha|hypothes[ie]s|cut-?off)s?\b.{0,40}"
        r"\b(?:after\s+(?:seeing|the\s+results|we\s+see|looking|training|the\s+run|the\s+data)|once\s+"
        r"(?:we|the\s+results)|later|depending\s+on|when\s+we\s+see|based\s+on\s+(?:the\s+)?results)",
        "the criterion of success is set after the results",
        "Register hypothesis, alpha and minimum effect before any data.",
    ),
    Rule(
        "cherry_picked_examples",
        "HIGH",
        r"\bcherry-?\s?pick\w*"
        r"|\b(?:show|pick|select|present|includ|choos|highlight|display)\w*\b.{0,30}\b(?:best|nicest|most\s+"
        r"(?:impressive|convincing|striking)|favou?rable|striking|good[\s-]looking|impressive)\s+(?:\w+\s+)?"
        r"(?:examples?|samples?|outputs?|answers?|cases?|generations?|completions?)\b",
        "examples are chosen for how good they look",
        "Show examples at fixed places, or drawn at random with a stated seed.",
    ),
    Rule(
        "post_hoc_subgroup",
        "HIGH",
        r"\b(?:find|look\s+for|search|report|identify|explor|emphasi[sz]|focus)\w*\b.{0,40}\b"
        r"(?:sub-?groups?|categor(?:y|ies)|subsets?|slices?|domains?|kinds?)\b.{0,15}\b"
        r"(?:where|in\s+which|that|for\s+which)\b.{0,40}\b"
        r"(?:improv|significan|work|better|win|gain|help|best)\w*",
        "subgroups are chosen by where the effect is",
        "Register the subgroups, adjust for their number, and report all of them.",
    ),
    Rule(
        "left_out_runs",
        "HIGH",
        r"\b(?:drop|exclud|remov|discard|ignor|omit|leav\w*\s+out|throw\w*\s+away|filter\w*\s+out)\w*\b.{0,30}"
        r"\b(?:failed|bad|diverged|outlier|worst|crashed|unlucky|negative|outlying|disappointing)\s*"
        r"(?:\w+\s+)?(?:runs?|seeds?|results?|trials?|items?|experiments?|s)\b",
        "runs or results are left out for what they show",
        "Report every attempt; register beforehand what makes one invalid.",
    ),
    Rule(
        "best_of_seeds",
        "HIGH",
        r"\b(?:report|tak|keep|us|publish|present|submit)\w*\b.{0,30}\b"
        r"(?:best|highest|top|luckiest|maximum|strongest)\b.{0,12}\b(?:of\b.{0,20}\b"
        r"(?:seeds?|runs?|trials?)|seed|run)\b",
        "the best of several seeds is reported: its luck is reported with it",
        "Report mean and spread over all registered seeds.",
    ),
    Rule(
        "one_seed_claimed_general",
        "HIGH",
        r"\b(?:one|single|1)\s+(?:seed|run)\b.{0,80}\b"
        r"(?:shows?|proves?|conclud\w*|generali[sz]\w*|demonstrat\w*|establish\w*|enough|suffic\w*|in\s+general|robust\w*)"
        r"|\b(?:shows?|proves?|conclud\w*|demonstrat\w*|establish\w*|claim\w*)\b.{0,80}\b(?:from|with|on)\s+"
        r"(?:one|a\s+single|1)\s+(?:seed|run)\b",
        "one seed is to carry a general claim: its luck is not part of the interval",
        "Run several seeds, or claim the effect for this run alone.",
    ),
    Rule(
        "no_uncertainty",
        "HIGH",
        r"\b(?:without|no|skip\w*|omit\w*|need\s+no|not\s+(?:need|report|compute|give|include))\s+"
        r"(?:any\s+|the\s+)?"
        r"(?:error\s+bars?|confidence\s+intervals?|intervals?|uncertaint\w+|standard\s+errors?|significance\s+tests?|statistical\s+tests?)"
        r"\b",
        "a difference is to be reported without its uncertainty",
        "Give an interval and a registered test for every difference that is claimed.",
        says_no=True,
    ),
    Rule(
        "no_baseline",
        "HIGH",
        r"\b(?:without|no|skip\w*|omit\w*|need\s+no|not\s+(?:need|run|use|have|measure|include))\s+"
        r"(?:a\s+|any\s+|the\s+)?(?:baselines?|controls?|comparison)\b(?!\s+(?:of|over|between)\b)",
        "no baseline: nothing shows what the training changed",
        "Measure the untrained model on the same items, with the same settings.",
        says_no=True,
    ),
    Rule(
        "no_heldout",
        "CRITICAL",
        r"\b(?:without|no|skip\w*|need\s+no|not\s+(?:need|use|have|keep|make))\s+"
        r"(?:a\s+|any\s+|the\s+|an\s+|separate\s+)*(?:held-?\s?out|test|validation|evaluation)\s+"
        r"(?:set|split|data|items)\b"
        r"|\b(?:evaluat|test|measur|report)\w*\b.{0,40}\bon\s+(?:the\s+)?(?:(?:same\s+)?training|train)\s+"
        r"(?:set|split|data|items|examples|prompts)\b",
        "the result is measured on data that were trained on, or on none that were kept apart",
        "Keep a held-out split apart before anything is trained.",
        says_no=True,
    ),
    Rule(
        "no_deduplication",
        "HIGH",
        r"\b(?:without|no|skip\w*|need\s+no|not\s+(?:need|do|check|run|bother\s+with))\s+"
        r"(?:to\s+|any\s+|for\s+|the\s+)*"
        r"(?:de-?duplicat\w*|dedup\w*|overlaps?|overlap\s+checks?|decontaminat\w*|contamination"
        r"(?:\s+checks?)?|near[\s-]duplicates?)\b(?!\s+(?:was|were|is|are|found|remain\w*|between)\b)",
        "overlap between training and held-out data is not looked for",
        "Compare both, near duplicates and paraphrases included, before training.",
        says_no=True,
    ),
    Rule(
        "uncorrected_comparisons",
        "HIGH",
        r"\b(?:without|no|skip\w*|need\s+no|not\s+(?:need|apply|use))\s+(?:a\s+|any\s+|the\s+)?"
        r"(?:correction|adjustment|bonferroni|holm)\w*\b(?:.{0,30}\b(?:multiple|comparisons?|tests?|testing))?"
        r"|\b(?:test|try|compar|evaluat)\w*\b.{0,20}\b(?:all|many|several|dozens\s+of|\d{1,3})\s+(?:\w+\s+)?"
        r"(?:metrics|benchmarks|variants|prompts|hypotheses)\b.{0,60}\b(?:report|claim|publish)\w*\b.{0,30}\b"
        r"(?:any|whichever|those\s+that|the\s+ones?\s+that|what)\b",
        "many comparisons are made and the significant ones are reported as if each were the only one",
        "Register one comparison, or adjust for all that are made.",
        says_no=True,
    ),
    Rule(
        "judges_itself",
        "HIGH",
        r"\b(?:same|trained|fine-?tuned|tuned)\s+model\b.{0,40}\b(?:judg|grad|scor|rat)\w*\b.{0,30}\b"
        r"(?:its\s+own|own|itself)\b"
        r"|\bmodel\s+(?:judges|grades|scores|rates)\s+its\s+own\b"
        r"|\bself-?(?:grad|scor|rat)(?:es|ed|ing)\b",
        "the model judges its own answers",
        "Judge with a verifier, or with a model that is not one of the arms and agrees with people.",
    ),
    Rule(
        "unequal_arms",
        "HIGH",
        r"\b(?:different|larger|longer|higher|better|improved|more)\s+(?:system\s+)?"
        r"(?:prompts?|max_new_tokens|token\s+limits?|decoding|temperatures?|few-?shot\s+examples?|attempts?|tokens)"
        r"\b.{0,30}\b(?:for|in|to)\s+(?:the\s+)?(?:treatment|fine-?tuned|trained|new|tuned|our)\b",
        "the arms are not evaluated the same way",
        "Give both arms the same prompt, decoding, limits and machine.",
    ),
)  # fmt: skip
"""In the order in which a reader meets them: data and selection, stopping and metrics, what is reported, comparison."""

UNSAID: tuple[tuple[str, str, str], ...] = (
    (
        r"baseline|control (?:arm|run|group)|untrained|before training|base model|before and after",
        "the plan names no baseline",
        "State what the trained model is compared with, on the same items.",
    ),
    (
        r"held-?\s?out|test (?:set|split|items|data)|validation (?:set|split)|unseen",
        "the plan names no held-out data",
        "State which items are kept apart, and how many.",
    ),
    (
        r"\bseeds?\b|repetitions?|repeated runs|replicat",
        "the plan says nothing of seeds",
        "State how many seeds are run and how they are combined.",
    ),
    (
        r"interval|error bar|standard error|significan|bootstrap|mcnemar|t-?test|\bp\s*[<=]|alpha|power\b",
        "the plan names neither a test nor an interval",
        "Register the test, alpha, the minimum effect and n.",
    ),
    (
        r"overlap|dedup|duplicat|contaminat|leak",
        "the plan does not say how overlap of training and held-out data is looked for",
        "State how duplicates, near ones included, are found and removed.",
    ),
)
"""What a plan has to speak of: the words that do, what is said where none does, and what to add."""
IS_PLAN = (
    re.compile(r"\b(?:train|fine-?tun|sft|dpo|lora)\w*", re.IGNORECASE),
    re.compile(r"\b(?:evaluat|measur|compar|accuracy|benchmark|improv|test)\w*", re.IGNORECASE),
)
