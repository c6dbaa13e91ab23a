"""The works that a paper cites: only those whose method, model or library its sessions used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from reviews.history.history import History
from specs.system.errors import PeergateError


class UsedParts(NamedTuple):
    """What the sessions of a paper used."""

    stages: tuple[Any, ...]
    """The stages whose jobs were launched."""
    packages: dict[str, set[str]]
    """Versions of libraries, as the jobs stated them."""
    sources: frozenset[str]
    """Of the models that were loaded."""
    metrics: frozenset[str]
    """Ids of what was measured."""
    has_shares: bool
    """Whether shares with an interval were measured."""
    kinds_compared: bool
    seeds_compared: bool


class Reference(NamedTuple):
    """A work, what it is cited for, and when."""

    key: str
    words: str
    bibtex: str
    is_used: Callable[[UsedParts], bool]


def _bibtex(kind: str, author: str, title: str, year: int, **fields: str) -> str:
    lines = {"author": author, "title": f"{{{title}}}", "year": str(year)} | fields
    return f"@{kind}{{KEY,\n" + "".join(f"  {name} = {{{value}}},\n" for name, value in lines.items()) + "}\n"


def _arxiv(number: str) -> dict[str, str]:
    return {"eprint": number, "archiveprefix": "arXiv"}


def _of_kind(*kinds: str) -> Callable[[UsedParts], bool]:
    return lambda parts: any(stage.kind in kinds for stage in parts.stages)


def _of_method(*methods: str) -> Callable[[UsedParts], bool]:
    return lambda parts: any(getattr(stage.parameters, "method", None) in methods for stage in parts.stages)


def _of_package(name: str) -> Callable[[UsedParts], bool]:
    return lambda parts: name in parts.packages


def _of_model(word: str) -> Callable[[UsedParts], bool]:
    return lambda parts: any(word in source.lower() for source in parts.sources)


def _of_metric(name: str) -> Callable[[UsedParts], bool]:
    return lambda parts: name in parts.metrics


def _has_shares(parts: UsedParts) -> bool:
    return parts.has_shares


def _compares_kinds(parts: UsedParts) -> bool:
    return parts.kinds_compared


def _compares_seeds(parts: UsedParts) -> bool:
    return parts.seeds_compared


def _reads_constitution(parts: UsedParts) -> bool:
    return any("constitution" in stage.inputs.values() for stage in parts.stages)


REFERENCES: tuple[Reference, ...] = (
    Reference(
        "mcnemar1947",
        "the test of paired proportions, in its exact form",
        _bibtex(
            "article",
            "McNemar, Quinn",
            "Note on the sampling error of the difference between correlated proportions or percentages",
            1947,
            journal="Psychometrika",
            volume="12",
            number="2",
            pages="153--157",
        ),
        _of_metric("mcnemar_p"),
    ),
    Reference(
        "bonett2012",
        "the interval of the gain",
        _bibtex(
            "article",
            "Bonett, Douglas G. and Price, Robert M.",
            "Adjusted Wald confidence interval for a difference of binomial proportions based on paired data",
            2012,
            journal="Journal of Educational and Behavioral Statistics",
            volume="37",
            number="4",
            pages="479--488",
        ),
        _of_metric("accuracy_gain"),
    ),
    Reference(
        "wilson1927",
        "intervals of shares",
        _bibtex(
            "article",
            "Wilson, Edwin B.",
            "Probable inference, the law of succession, and statistical inference",
            1927,
            journal="Journal of the American Statistical Association",
            volume="22",
            number="158",
            pages="209--212",
        ),
        _has_shares,
    ),
    Reference(
        "cohen1988",
        "the effect size h",
        _bibtex(
            "book",
            "Cohen, Jacob",
            "Statistical Power Analysis for the Behavioral Sciences",
            1988,
            edition="2",
            publisher="Lawrence Erlbaum Associates",
        ),
        _of_metric("cohens_h"),
    ),
    Reference(
        "benjamini1995",
        "p-values adjusted over the kinds",
        _bibtex(
            "article",
            "Benjamini, Yoav and Hochberg, Yosef",
            "Controlling the false discovery rate: a practical and powerful approach to multiple testing",
            1995,
            journal="Journal of the Royal Statistical Society: Series B",
            volume="57",
            number="1",
            pages="289--300",
        ),
        _compares_kinds,
    ),
    Reference(
        "holm1979",
        "p-values adjusted over the arms",
        _bibtex(
            "article",
            "Holm, Sture",
            "A simple sequentially rejective multiple test procedure",
            1979,
            journal="Scandinavian Journal of Statistics",
            volume="6",
            number="2",
            pages="65--70",
        ),
        _of_metric("arms_p"),
    ),
    Reference(
        "owen2007",
        "the interval over seeds and items",
        _bibtex(
            "article",
            "Owen, Art B.",
            "The pigeonhole bootstrap",
            2007,
            journal="The Annals of Applied Statistics",
            volume="1",
            number="2",
            pages="386--411",
        ),
        _compares_seeds,
    ),
    Reference(
        "bai2022constitutional",
        "critique and revision along a constitution",
        _bibtex(
            "misc",
            "Bai, Yuntao and Kadavath, Saurav and Kundu, Sandipan and Askell, Amanda and others",
            "Constitutional AI: Harmlessness from AI Feedback",
            2022,
            **_arxiv("2212.08073"),
        ),
        _reads_constitution,
    ),
    Reference(
        "wang2023selfinstruct",
        "instructions written by the model",
        _bibtex(
            "inproceedings",
            "Wang, Yizhong and Kordi, Yeganeh and Mishra, Swaroop and Liu, Alisa and Smith, Noah A. and "
            "Khashabi, Daniel and Hajishirzi, Hannaneh",
            "Self-Instruct: Aligning Language Models with Self-Generated Instructions",
            2023,
            booktitle="Proceedings of the 61st Annual Meeting of the Association for Computational Linguistics",
            **_arxiv("2212.10560"),
        ),
        _of_kind("self_instruct"),
    ),
    Reference(
        "rafailov2023dpo",
        "direct preference optimization",
        _bibtex(
            "inproceedings",
            "Rafailov, Rafael and Sharma, Archit and Mitchell, Eric and Ermon, Stefano and Manning, Christopher D. "
            "and Finn, Chelsea",
            "Direct Preference Optimization: Your Language Model is Secretly a Reward Model",
            2023,
            booktitle="Advances in Neural Information Processing Systems",
            **_arxiv("2305.18290"),
        ),
        _of_kind("dpo"),
    ),
    Reference(
        "shao2024deepseekmath",
        "group relative policy optimization",
        _bibtex(
            "misc",
            "Shao, Zhihong and Wang, Peiyi and Zhu, Qihao and others",
            "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
            2024,
            **_arxiv("2402.03300"),
        ),
        _of_kind("grpo"),
    ),
    Reference(
        "hu2022lora",
        "low-rank adapters",
        _bibtex(
            "inproceedings",
            "Hu, Edward J. and Shen, Yelong and Wallis, Phillip and others",
            "LoRA: Low-Rank Adaptation of Large Language Models",
            2022,
            booktitle="International Conference on Learning Representations",
            **_arxiv("2106.09685"),
        ),
        _of_method("lora", "qlora"),
    ),
    Reference(
        "dettmers2023qlora",
        "adapters on weights of four bits",
        _bibtex(
            "inproceedings",
            "Dettmers, Tim and Pagnoni, Artidoro and Holtzman, Ari and Zettlemoyer, Luke",
            "QLoRA: Efficient Finetuning of Quantized LLMs",
            2023,
            booktitle="Advances in Neural Information Processing Systems",
            **_arxiv("2305.14314"),
        ),
        _of_method("qlora"),
    ),
    Reference(
        "smollm2",
        "the report of the model",
        _bibtex(
            "misc",
            "Ben Allal, Loubna and Lozhkov, Anton and Bakouch, Elie and others",
            "SmolLM2: When Smol Goes Big -- Data-Centric Training of a Small Language Model",
            2025,
            **_arxiv("2502.02737"),
        ),
        _of_model("smollm2"),
    ),
    Reference(
        "qwen25",
        "the report of the model family",
        _bibtex("misc", "{Qwen Team}", "Qwen2.5 Technical Report", 2024, **_arxiv("2412.15115")),
        _of_model("qwen2.5"),
    ),
    Reference(
        "wolf2020transformers",
        "the library transformers",
        _bibtex(
            "inproceedings",
            "Wolf, Thomas and Debut, Lysandre and Sanh, Victor and others",
            "Transformers: State-of-the-Art Natural Language Processing",
            2020,
            booktitle="Proceedings of EMNLP: System Demonstrations",
            pages="38--45",
        ),
        _of_package("transformers"),
    ),
    Reference(
        "vonwerra2020trl",
        "the library TRL",
        _bibtex(
            "misc",
            "von Werra, Leandro and Belkada, Younes and Tunstall, Lewis and others",
            "TRL: Transformer Reinforcement Learning",
            2020,
            howpublished="https://github.com/huggingface/trl",
        ),
        _of_package("trl"),
    ),
    Reference(
        "paszke2019pytorch",
        "the library PyTorch",
        _bibtex(
            "inproceedings",
            "Paszke, Adam and Gross, Sam and Massa, Francisco and others",
            "PyTorch: An Imperative Style, High-Performance Deep Learning Library",
            2019,
            booktitle="Advances in Neural Information Processing Systems",
            **_arxiv("1912.01703"),
        ),
        _of_package("torch"),
    ),
    Reference(
        "biderman2024lm",
        "the benchmarks of lm-eval",
        _bibtex(
            "misc",
            "Biderman, Stella and Schoelkopf, Hailey and Sutawika, Lintang and others",
            "Lessons from the Trenches on Reproducible Evaluation of Language Models",
            2024,
            **_arxiv("2405.14782"),
        ),
        _of_kind("lm_eval"),
    ),
    Reference(
        "zheng2023judging",
        "a model that judges pairs of answers",
        _bibtex(
            "inproceedings",
            "Zheng, Lianmin and Chiang, Wei-Lin and Sheng, Ying and others",
            "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena",
            2023,
            booktitle="Advances in Neural Information Processing Systems",
            **_arxiv("2306.05685"),
        ),
        _of_kind("pairwise_judge"),
    ),
)


def used_parts(histories: Sequence[History], reports: Sequence[dict[str, Any]], *, over_seeds: bool) -> UsedParts:
    """Return what sessions used, from their trails and reports."""
    stages, packages = list[Any](), dict[str, set[str]]()
    sources, metrics, shares = set[str](), set[str](), False
    for history, report in zip(histories, reports, strict=True):
        spec = history.resolved.spec
        sources |= {spec.model.source, spec.model.shape or ""} if report["model"] else set()
        for stage in spec.stages:
            attempts = [attempt for attempt in history.attempts(stage.name) if attempt.launch]
            stages += [stage] if attempts else []
            if attempts and "control" in stage.inputs.values() and spec.control:
                sources.add(spec.control.source)
            for name, version in _packages(attempts):
                packages.setdefault(name, set()).add(version)
        measured = list(_metrics(report))
        metrics |= {metric["id"] for metric in measured}
        shares |= any(metric["interval"] and metric["id"] != "accuracy_gain" for metric in measured)
    kinds = any(len(report["accuracy_by_kind"]) > 1 for report in reports)
    return UsedParts(tuple(stages), packages, frozenset(sources), frozenset(metrics), shares, kinds, over_seeds)


def _packages(attempts: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for attempt in attempts:
        try:
            manifest = attempt.manifest
        except (PeergateError, ValueError):
            # A job may have left anything; then it states no version.
            continue
        if manifest is not None:
            yield from manifest.packages.items()


def _metrics(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for stage in report["stages"]:
        for attempt in stage["attempts"]:
            yield from attempt["metrics"].values()


def bibliography(keys: set[str]) -> str:
    """Return the BibTeX of the cited works."""
    cited = [reference for reference in REFERENCES if reference.key in keys]
    return "\n".join(reference.bibtex.replace("KEY", reference.key, 1) for reference in cited)
