"""The thresholds of the deterministic checks, with defaults and limits that no spec can leave."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from specs.system.digests import Contract

Share = Annotated[float, Field(ge=0, le=0.95)]
"""A fraction; near 1 a check could hardly speak."""


class Thresholds(Contract):
    """The limits of the checks. Each description states the unit and what is counted."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    items_per_kind: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Items: the least of each constraint kind in the held-out split; 8 gained of 8 reach p < 0.01 (2 / 2**8)."""
    common_answer: Annotated[float, Field(gt=0, le=0.98)] = 0.8
    """Fraction of the held-out items that name their answer: items for which the most common answer is right."""
    kind_dependence: Annotated[float, Field(ge=0.1, le=1)] = 0.5
    """Fraction of `minimum_effect`: if less of the gain remains without a constraint kind, that kind carries it."""
    prompt_similarity: Annotated[float, Field(ge=0.5, le=0.95)] = 0.8
    """Jaccard similarity of word 3-shingles: prompts or completions that reach it are near duplicates."""
    contained_words: Annotated[int, Field(ge=3, le=50)] = 8
    """Words: a training text may contain no held-out prompt of this length or more, nor a completion its prompt."""
    written_heldout: Annotated[float, Field(ge=0, le=0.2)] = 0.1
    """Fraction of the instructions that `self_instruct` keeps: held-out prompts or nearly so, which are removed."""
    repeated_rows: Share = 0.1
    """Fraction of the training rows: rows that repeat another one word for word."""
    damaged_texts: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Fraction of the held-out or of the training texts: texts with characters of a wrong encoding, hidden characters,
    marks of a chat template or everything twice. 1 is for tasks about such texts."""

    ceiling_kind: Annotated[float, Field(ge=0.05, le=1)] = 0.25
    """Fraction of the held-out items of a kind: the least that a registered ceiling passes."""
    truncated_answers: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Fraction of the held-out items: answers that hit the token limit. 1 is for models that do not stop yet."""
    learned_stops: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of the held-out items: answers cut off in the baseline alone that may count as learned to stop."""
    empty_answers: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """Fraction of the held-out items: answers without a visible character."""
    label_answers: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Fraction of the held-out items: answers of one or two words. 1 is for tasks that ask for a label."""
    identical_answers: Annotated[float, Field(gt=0, le=0.95)] = 0.2
    """Fraction of the held-out items: items that got the most frequent answer."""
    near_answers: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Fraction of the held-out items: answers that nearly repeat one to an earlier item, above which a check warns."""
    off_topic: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Fraction of the accepted answers: off topic, or with their whole prompt, above which a check warns."""

    scorer_agreement: Annotated[float, Field(ge=0.4, le=1)] = 0.7
    """Cohen's kappa with people: the least for a scorer or judge on all answers, for a scorer also at equal length."""
    scorer_length: Annotated[float, Field(gt=0, le=0.5)] = 0.3
    """Correlation of a scorer with length; or fraction: how much more than people a judge prefers longer answers."""

    scorer_labelled: Annotated[int, Field(ge=10, le=100_000)] = 20
    """Labelled answers, or pairs for a judge: the least that admits one. Fewer leave kappa too uncertain."""
    scorer_sides: Annotated[float, Field(ge=0.05, le=0.5)] = 0.2
    """Fraction of the labelled answers of either label: the least longer, and shorter, than the overall median."""
    scorer_matched: Annotated[float, Field(ge=1, le=2)] = 1.25
    """Ratio of two lengths in characters: answers up to it count as equally long."""

    truncated_samples: Share = 0.25
    """Fraction of all sampled completions: samples that hit the token limit."""
    delimiters: Annotated[float, Field(ge=0, le=0.2)] = 0.01
    """Fraction of the accepted completions: completions with an unrequested delimiter, role or template mark."""
    refusals: Share = 0.05
    """Fraction of the accepted completions: completions that refuse, or speak as an evaluator."""
    prompt_copies: Annotated[float, Field(ge=0, le=0.5)] = 0.02
    """Fraction of the accepted completions: completions that repeat their prompt or the worked example."""
    repeated_edges: Annotated[float, Field(ge=0.02, lt=1)] = 0.1
    """Fraction of accepted completions, overall or of a kind: same first or last words on at least 3 groups."""
    copies: Annotated[int, Field(ge=1, le=1000)] = 10
    """Completions: how often the most frequent accepted completion may occur, case and marks ignored."""
    near_duplicates: Annotated[float, Field(ge=0, le=0.9)] = 0.5
    """Fraction of the accepted completions: completions that nearly repeat an earlier one."""
    base_follows: Annotated[float, Field(gt=0, le=0.5)] = 0.4
    """Fraction of the sentinels that are commands: the most a model declared base may follow as bare text."""
    control_follows: Annotated[float, Field(ge=0.3, le=1)] = 0.5
    """Fraction of the command sentinels: the least that control and instruct models follow with their chat template."""

    length_spread: Annotated[float, Field(gt=1, le=100)] = 5.0
    """Ratio: 95th percentile of the length of accepted completions, in model tokens, to their median."""

    critic_kappa: Annotated[float, Field(ge=0.2, le=1)] = 0.6
    """Cohen's kappa of an A/B critic with a person: the least that counts (0.6: substantial, Landis and Koch 1977)."""
    labelled_items: Annotated[int, Field(ge=10, le=100_000)] = 30
    """Items: the least a labelled sample of an A/B critic holds."""
    labelled_minority: Annotated[int, Field(ge=2, le=10_000)] = 5
    """Items: the least a labelled sample of an A/B critic holds of the rarer label."""
    swap_inconsistency: Annotated[float, Field(ge=0, le=0.5)] = 0.25
    """Fraction of an A/B critic's rows: verdicts that change when the labels are swapped. A coin has 0.5."""
    length_bias: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Ratio: mean words by which chosen responses are longer or shorter than rejected ones, to the mean of both."""

    passes: Annotated[int, Field(ge=1, le=100)] = 10
    """Epochs: passes over the same training examples."""
    parameters_per_token: Annotated[float, Field(gt=0, le=1e9)] = 1e5
    """Ratio: trained parameters to distinct tokens that carry loss."""
    gradient_spike: Annotated[float, Field(gt=1, le=1000)] = 20.0
    """Ratio: gradient norm of an optimizer step, before clipping, to the median of the nine steps before it."""
    schedule_deviation: Annotated[float, Field(gt=0, le=0.25)] = 0.02
    """Fraction of the granted learning rate: farthest distance of a step's rate from the granted schedule."""
    loss_drop: Share = 0.01
    """Fraction of the first loss (mean of the first fifth of the steps): the least by which the last fifth is lower."""
    lost_sequences: Share = 0.1
    """Fraction of the sequences that replicas were to train on: sequences whose steps are not in the model."""

    warmup_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Fraction of the planned optimizer steps: warm-up above which a check warns."""
    idle_steps: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Fraction of the optimizer steps: steps below a twentieth of the peak rate that explain a flat loss."""
    loss_rise: Annotated[float, Field(gt=0, le=10)] = 0.1
    """Fraction of the lowest loss (mean of a fifth of the steps): the most by which the last fifth may be higher."""
    training_speed: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Fraction of the expected speed: 6 operations a parameter and token, 60 GFLOP/s on a CPU, 100 TFLOP/s on a GPU."""
    speed_spread: Share = 0.15
    """Fraction of their mean: spread of rates of `bench` rounds above which the worst round counts, not the median."""

    rollout_kl: Annotated[float, Field(gt=0, le=20)] = 1.0
    """Nats a token: KL divergence from the granted model, in the last fifth of the steps of training on rollouts."""
    entropy_left: Annotated[float, Field(ge=0.01, lt=1)] = 0.2
    """Fraction of the entropy of a token in the first fifth of the steps: the least that the last fifth has."""
    rollout_length: Annotated[float, Field(gt=1, le=100)] = 2.0
    """Ratio: mean tokens of answers in the last and the first fifth of the rounds, the longer to the shorter."""
    tied_groups: Share = 0.8
    """Fraction of the answers that were trained on: answers of groups in which all have the same reward."""
    clipped_tokens: Share = 0.3
    """Fraction of the tokens of a step: tokens whose ratio left the clipping range."""
    verified_rise: Annotated[float, Field(ge=0.05, le=1)] = 0.25
    """Fraction of the rise of the reward: the least part that accepted answers must explain."""

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out defaults, which the digest of measuring code covers: a later threshold changes no registration."""
        values: dict[str, Any] = handler(self)
        return {name: value for name, value in values.items() if value != type(self).model_fields[name].default}
