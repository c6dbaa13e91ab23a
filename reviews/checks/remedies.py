"""What a person can change where a check closes a gate. Shown by `check explain`, at the terminal and in the report."""

from __future__ import annotations

from reviews.checks.job_endings import ending_of_check
from specs.trail.verdict import CheckResult

REMEDIES: dict[str, str] = {
    "design.power": "more held-out items (`analysis.n`), or a larger `minimum_effect`; the check says how many",
    "design.paired": "more held-out items, or a larger minimum for the paired test",
    "design.overlap": "remove the rows shown from the training data; the held-out split stays as it is",
    "design.unique": "remove repeated items from the held-out split, and register its new digest",
    "design.strata": "more held-out items of the kinds shown, or a smaller `thresholds.items_per_kind`",
    "design.principles": "held-out items that ask for what the principle asks, or other `instructions` of it",
    "design.transfer": "more items, of another origin than the held-out ones, without repeats",
    "design.drawn": "hold out the items that the rule draws from the pool, and register the new digest",
    "design.items": "correct or remove the items shown, and register the new digest",
    "design.answers": "remove the answer from the prompts shown",
    "design.common_answer": "held-out items whose right answers differ, or a larger `thresholds.common_answer`",
    "design.distinct": "right answers that differ in more than marks, articles or capitals; final answers in "
    "the place of rationales, or `find: last_number`",
    "design.scorer": "another scorer, or more labelled answers for it",
    "design.verdicts": "fix the verifier: it must give the same verdict each time",
    "design.labelled": "label more samples, of the rarer label too (`thresholds.labelled_items`)",
    "design.groups": "give training and held-out items other groups, and held-out items at least four",
    "design.texts": "read the files in their encoding, and take marks of templates out of the rows shown; "
    "a larger `thresholds.damaged_texts` where they belong there",
    "design.duplicates": "remove repeated prompts from the training data",
    "design.baseline": "a baseline that reads what the treatment starts from, or a stage like it that reads `model`",
    "design.independence": "a reviewer of another vendor than the builder's",
    "design.schedule": "fewer `warmup_steps`, a smaller `warmup_ratio`, or more examples or `epochs`",
    "design.unused": "evaluate the checkpoint of the stage shown, or `evaluation.not_evaluated`",
    "design.brought": "take out or correct the rows shown; `evaluation.not_judged` where nothing can judge pairs",
    "design.cost": "a larger `budget`, or smaller limits of the stages (`max_minutes`, `max_cost_usd`)",
    "amendment.loosens": "fix what failed; or `peergate amend --override` with a reason, which every report counts",
    "registration.model": "name the pinned weights again, or begin another session with the new ones",
    "registration.split": "restore the held-out file, or begin another session with the new one",
    "jobs.exit": "what the end of the job's log names: a missing package, an option, memory or disk",
    "jobs.cost": "a larger `max_cost_usd` or `max_minutes` of the stage, by `peergate amend`",
    "jobs.device": "a machine with the granted device and precision, the same for both arms",
    "leakage.overlap": "remove the rows shown from the training data, and begin another session",
    "leakage.groups": "train on other groups than the held-out ones",
    "dpo.overlap": "remove the rows shown from the pairs, and begin another session",
    "dpo.groups": "pairs of other groups than the held-out ones",
    "rollouts.overlap": "remove the rows shown from prompts or pairs, and begin another session",
    "rollouts.groups": "prompts and pairs of other groups than the held-out ones",
    "lineage.circular": "teachers of other families, or a reason: `peergate traces replay --circular REASON`",
    "rollouts.ties": "more `generations`, a higher `temperature`, or prompts that the model can do sometimes",
    "rollouts.hacking": "other `rewards`, of which `verified` is the largest part, or a larger `kl_weight`",
    "rollouts.channels": "give the channel something to learn from, or remove it from `channels`",
    "replicas.equal": "restart the stage: replicas that differ are not a model; the log names the synchronisation",
    "replicas.apart": "give each replica different examples: more examples, or fewer `replicas`",
    "replicas.quorum": "restart the stage, where no replica is killed; `min_replicas` says how many must take part",
    "replicas.samples": "restart the stage, or a larger `thresholds.lost_sequences`, registered beforehand",
    "replicas.single": "the batch sizes, so that all replicas together train on what the single process does",
    "replicas.bytes": "`sync_every` as it was registered; the log says what was sent at each synchronisation",
    "dpo.split": "keep whole groups of pairs out, not single pairs",
    "pilot.followed": "the pilot's parameters; or another pilot with these",
    "power.n": "evaluate all registered items: the stage's `limit` or its data leave some out",
    "power.headroom": "harder items, or a smaller `minimum_effect`: the baseline is too good for the registered gain",
    "power.test": "both arms must be evaluated; read why the test has no result",
    "parity.settings": "the same parameters for both arms, on the same machine and code",
    "parity.models": "a treatment that was trained from the baseline's weights",
    "parity.prompts": "one tokenizer and chat template for both arms; `template_date` below `model:` for a template "
    "that writes the date",
    "parity.truncation": "a larger `max_new_tokens` for both arms, or `stops` that end the baseline's answers. If the "
    "model is to learn to stop, register how many answers that may be: `thresholds.learned_stops`, and "
    "`thresholds.truncated_answers` for the baseline's own gate",
    "gap.before_training": "other items: the task must be possible, and the untrained model must fail some of it",
    "drift.kept": "fewer steps, a lower `learning_rate`, or training data that also hold what must not fall",
    "strata.sensitivity": "as many held-out items of each kind, or a session that claims the effect for that kind",
    "strata.groups": "held-out items of more groups",
    "items.ceiling": "items that a capable model can pass; or look at the verifier of the kinds shown",
    "health.truncation": "a larger `max_new_tokens`, or `stops` at which an answer is complete; if long answers are to "
    "be expected of this model, a larger `thresholds.truncated_answers`, registered beforehand",
    "health.empty": "look at the prompt format and the `stops`: a stop that begins every answer empties it",
    "health.labels": "for a task that asks for a word, short right answers that `known_answers()` names, or "
    "`thresholds.label_answers`; else prompts that ask for more",
    "health.collapse": "fewer steps or a lower `learning_rate`; more varied training data, with as many examples "
    "of each label where answers are labels",
    "health.template": "`model.kind` or the prompt format of the stage: instruct models need their chat template",
    "health.kept": "a larger `max_new_tokens` or `samples_per_prompt`, easier prompts, or a model that can do some",
    "residue.delimiters": "`stops` at the delimiters shown, or `thresholds.delimiters`",
    "residue.refusals": "another worked example or system prompt; `thresholds.refusals` if refusing is the task",
    "residue.copies": "another worked example, or a higher `temperature`",
    "variety.copies": "a higher `temperature`, more prompts, or `thresholds.copies`",
    "variety.near": "a higher `temperature`, more varied prompts, or `thresholds.near_duplicates`",
    "benchmark.sandbox": "install bubblewrap 0.8 or newer on the machine that runs the task",
    "benchmark.log": "begin the stage again: log and rows must be unchanged since the job wrote them",
    "benchmark.task": "the registered script and arguments; `peergate amend` registers others",
    "benchmark.items": "a task that reads all of its samples from `{items}`, each once",
    "benchmark.scores": "a scorer that judges the same answer alike; or another script, by `peergate amend`",
    "training.length": "a larger `max_length`, or shorter examples",
    "training.moved": "a higher `learning_rate` or more `epochs`: the weights hardly moved",
    "training.path": "a trainer that logs each optimizer step, with nothing else that changes the weights",
    "training.gradient": "a higher precision, or a lower `learning_rate`",
    "training.loss": "a higher `learning_rate`, more `epochs`, or data that can be learnt",
    "training.mask": "a chat template that keeps prompt and response apart, or examples with both",
    "training.batches": "more examples, or a smaller `batch_size`",
    "training.schedule": "a `learning_rate` above 0; or find what set the rate instead of the granted schedule",
    "training.decay": "a smaller `warmup_ratio` or fewer `warmup_steps`; `scheduler` linear or cosine",
    "training.plateau": "a schedule as long as the run; a higher rate then shows whether data are the limit",
    "training.rise": "a lower `learning_rate`, fewer `epochs`, or a smaller `max_grad_norm`",
    "design.scaling": "more data, a smaller model, or a pretrained one: fine-tuning needs no such rule",
    "training.scaling": "more distinct data, a smaller model, or a pretrained one",
    "training.starvation": "more distinct examples; adapters (`method: lora`) instead of all weights; fewer `epochs`",
    "training.validation": "begin the training again; where rows repeat, give equal examples one `group`",
    "training.stop": "begin the training again; it ends, and saves, by the registered `early_stopping`",
    "training.overfit": "`early_stopping`, fewer `epochs`, or a lower `learning_rate`; more examples; `method: lora`",
    "training.steps": "begin the training again, with a larger `max_minutes` if its time ran out",
    "training.device": "a machine with the granted GPU, and `device: cuda`, which refuses any other",
    "training.speed": "look at what else the machine does: memory, other jobs, disk; then run the stage again",
    "training.tokenizer": "find what wrote the tokenizer of the checkpoint, and train again from the granted model",
    "base_model_check.kind": "declare the `model.kind` that its sentinels show",
    "base_model_check.name": "declare the `model.kind` that the name says, or weights with another name",
    "base_model_check.control": "a control model that follows instructions",
    "critics.calibration": "a larger critic, a clearer rubric, or more labelled items",
    "critics.swap": "a larger critic, or a rubric whose labels mean the same in either place",
    "pairs.length": "pairs of like length, or `thresholds.length_bias`",
    "critics.selection": "a larger critic, or a rubric that asks for what the task's verifier accepts",
    "pairs.direction": "a model that revises better, `best_of_n_verified` in place of revisions, or a `judge`; where "
    "nothing can judge the pairs, `evaluation.not_judged` in a person's name",
    "pairs.copies": "a higher `revision_temperature`, or a model that revises more than marks",
    "pairs.answers": "a model that can do what the revision's prompt asks; look at the answers shown",
    "revise.gain": "other principles, or a model that revises without making answers wrong",
    "pairs.split": "keep whole groups on one side of the split",
    "text.overlap": "remove the held-out prompts shown from seeds and examples",
    "text.residue": "`stops` at the delimiters shown, and prompts that ask for nothing a model refuses",
    "traces.accounted": "ingest the sessions again with `peergate traces ingest`, and report the records that are lost",
    "traces.states": "run the stage again: answers are missing, or are to other states than the seed draws",
    "traces.pairs": "run the stage again: its pairs do not follow from its answers",
    "recipe.sandbox": "install bubblewrap; see docs/how-to/recipes.md",
    "recipe.heldout": "nothing of the held-out split may reach the script or what it writes",
    "recipe.checkpoint": "the script must save the registered model, trained, in its own format",
    "recipe.data": "remove the rows shown from what the script trains on",
    "scorer.repeats": "fix the verifier: it must give the same verdict each time",
    "scorer.admitted": "another scorer, or more labelled answers for it",
    "pairwise_judge.judge": "a larger judge, or more labelled pairs",
    "multi_turn.kinds": "more conversations of the kinds shown",
    "paired.registered": "more items, or report the paired test as not reached",
    "transfer.alike": "the arms' parameters and models at both stages of the split, on the same machine and code",
    "curve.forecast": "nothing closes: more held-out items, or arms of more different sizes, narrow the forecast",
    "arms.alike": "arms with the treatment's parameters, on the same machine and code, and weights of their own",
    "controls.alike": "controls that differ from their items in the history alone",
    "checkpoint.files": "what each row says under `fix`; an unusable checkpoint need not be evaluated",
    "package.probes": "a larger `max_new_tokens` for the probes; look at an answer of the package",
}
"""Remedies by check; parameters of the stage and keys of the spec are in back quotes."""

_UNTRAINED: dict[str, str] = {
    "health.collapse": "look at the answer shown: the prompt format, `stops` that cut every answer, or a model that "
    "cannot do the task; where one answer is right for many items, name the right ones: `answer` in the items, or "
    "`known_answers()` next to `verify`",
    "drift.kept": "the registered limit of the drift, or the model, which is as it was granted",
}
"""The same for a stage whose weights no stage of the session has trained."""

_GROUPS: dict[str, str] = {
    "registration": "restore what was registered; a change needs `peergate amend`, or another session",
    "jobs": "run the stage again on a machine that no one else changes; `peergate audit show` has its records",
    "witness": "if it read nothing, fix what ended it and run the stage once more; if it read something else, ask who "
    "could change rows or weights between the job and its witness",
    "provenance": "commit the code that runs, and begin another session",
    "claims": "the builder must state the measured values",
    "parity": "evaluate both arms on the same items, with the same parameters, on the same code",
    "health": "run the stage again, complete",
    "training": "begin the training again from the granted weights and data",
    "dpo": "begin the training again from the granted reference and pairs",
    "rollouts": "begin the training again from the granted weights and prompts",
    "base_model_check": "look at how bare prompts are encoded, and at the kind that `model.kind` declares",
    "text": "run the stage again: its rows do not follow from what was granted",
    "critics": "run the critic again: its rows do not follow from what was granted",
    "revise": "run the stage again: its rows do not follow from what was granted",
    "pairs": "make the pairs again: they do not follow from the rows",
    "package": "package the evaluated checkpoint again, and nothing else",
    "export": "export the checkpoint again; for a `format` that is too coarse, one of more bits",
    "code": "fix the problems' tests or solutions, and begin another session; or run the stage again",
    "bench": "another `engine`, a larger `batch_size` or another machine; a `floor` is that of one machine",
    "recipe": "fix the script: its rows must be complete",
}
"""For the checks of a group that have no line of their own."""


def remedy_of_result(check: CheckResult, *, trained: bool = True) -> str:
    """Return what can be changed where a check failed as recorded: of a job that broke, by the end of its log."""
    if check.id == "jobs.exit" and check.status == "FAIL":
        return ending_of_check(check).remedy
    return remedy_of(check.id, trained=trained)


def remedy_of(check: str, *, trained: bool = True) -> str:
    """Return what can be changed where a check fails; empty for one of another distribution, or of advice alone.

    Args:
        check: its id.
        trained: whether a stage of the session has trained the weights that the check is about.
    """
    own = "" if trained else _UNTRAINED.get(check, "")
    return own or REMEDIES.get(check) or _GROUPS.get(check.split(".")[0], "")
