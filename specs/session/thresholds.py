"""The thresholds of the deterministic checks: each has a default, and limits that no spec can leave.

A spec may loosen one before there are any data; the limits keep it from switching a check off. Only what differs from
its default is written into a registration: a spec that sets none keeps the digest it had before there were any.
The defaults themselves are covered by the digest of the measuring code, which every decision names.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from specs.digests import Contract

Share = Annotated[float, Field(ge=0, lt=1)]
"""A fraction; at 1 a check could never speak."""


class Thresholds(Contract):
    """Where the checks draw their lines. Each line says the unit and what is counted."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    items_per_kind: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Items: the least the held-out split holds of each constraint kind. 8 is the smallest number with which a kind
    that is gained as a whole can reach p < 0.01 in the exact test (2 / 2**8)."""
    kind_dependence: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Fraction of `minimum_effect`: the least gain that has to remain when any one constraint kind is left out."""
    prompt_similarity: Annotated[float, Field(ge=0.5, le=0.95)] = 0.8
    """Jaccard similarity of word 3-shingles: two texts that reach it are near duplicates (training against held-out
    prompts, completions against their prompt, and kept completions among themselves)."""
    contained_words: Annotated[int, Field(ge=3, le=50)] = 8
    """Words: a training text may not contain a whole held-out prompt of this length or more, nor a completion its
    prompt. Shorter ones occur in many texts by chance."""
    written_heldout: Annotated[float, Field(ge=0, le=0.2)] = 0.1
    """Fraction of the instructions that a `self_instruct` stage keeps: those that are held-out prompts, or near one.
    They are taken out; more of them close the gate, since the model or the seeds then know the split."""
    repeated_rows: Share = 0.1
    """Fraction of the training rows: rows that repeat another one word for word."""

    ceiling_kind: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Fraction of the held-out items of a kind: the least that a registered ceiling passes. Below it the items of that
    kind may be nonsense."""
    truncated_answers: Share = 0.25
    """Fraction of the held-out items: answers that hit the token limit."""
    empty_answers: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """Fraction of the held-out items: answers without a visible character."""
    label_answers: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Fraction of the held-out items: answers of one or two words. 1 is for tasks that ask for a label."""
    identical_answers: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Fraction of the held-out items: items that got the most frequent answer."""

    scorer_agreement: Annotated[float, Field(ge=0.4, le=1)] = 0.7
    """Cohen's kappa of a scorer or judge with people: the least at which its verdicts count, on all labelled answers
    and, for a scorer, on those of equal length."""
    scorer_length: Annotated[float, Field(gt=0, le=0.5)] = 0.3
    """Correlation, or fraction for a judge: how far verdicts go with the length of the answer among answers of one
    label; how much more often than people a judge prefers the longer answer."""

    scorer_labelled: Annotated[int, Field(ge=10, le=100_000)] = 20
    """Labelled answers, or pairs for a judge: the least a sample holds that admits one. With fewer, kappa is hardly
    known."""
    scorer_sides: Annotated[float, Field(ge=0.05, le=0.5)] = 0.2
    """Fraction of the labelled answers of either label: the least that is longer, and that is shorter, than the median
    of all. With less a ruler would agree with the labels too."""
    scorer_matched: Annotated[float, Field(ge=1, le=2)] = 1.25
    """Ratio of two lengths in characters: answers up to it count as equally long."""

    truncated_samples: Share = 0.25
    """Fraction of all sampled completions: samples that hit the token limit."""
    delimiters: Annotated[float, Field(ge=0, le=0.2)] = 0.01
    """Fraction of the accepted completions: those with a delimiter, role or template mark nobody asked for."""
    refusals: Share = 0.05
    """Fraction of the accepted completions: those that refuse, or speak as an evaluator."""
    prompt_copies: Annotated[float, Field(ge=0, le=0.5)] = 0.02
    """Fraction of the accepted completions: those that repeat their prompt or the worked example."""
    repeated_edges: Annotated[float, Field(ge=0.02, lt=1)] = 0.1
    """Fraction of the accepted completions, of all or of one constraint kind: those with the same first or last words
    on at least 3 groups."""
    copies: Annotated[int, Field(ge=1, le=1000)] = 10
    """Completions: how often the most frequent accepted completion may stand among them, case and marks ignored."""
    near_duplicates: Annotated[float, Field(ge=0, le=0.9)] = 0.5
    """Fraction of the accepted completions: those that nearly repeat an earlier one."""
    base_follows: Annotated[float, Field(gt=0, le=0.5)] = 0.4
    """Fraction of the sentinels that are commands: the most a model declared base may follow as bare text."""
    control_follows: Annotated[float, Field(ge=0.3, le=1)] = 0.5
    """Fraction of the sentinels that are commands: the least the control, and a model declared instruct, follows with
    its chat template."""

    length_spread: Annotated[float, Field(gt=1, le=100)] = 5.0
    """Ratio: 95th percentile of the length of accepted completions, in model tokens, to their median."""

    critic_kappa: Annotated[float, Field(ge=0.2, le=1)] = 0.6
    """Cohen's kappa of an A/B critic and a person on the labelled sample: the least at which what the critic accepts
    counts. 0.6 is where Landis and Koch 1977 begin to call agreement substantial."""
    labelled_items: Annotated[int, Field(ge=10, le=100_000)] = 30
    """Items: the least a labelled sample of an A/B critic holds."""
    labelled_minority: Annotated[int, Field(ge=2, le=10_000)] = 5
    """Items: the least a labelled sample of an A/B critic holds of the rarer label."""
    swap_inconsistency: Annotated[float, Field(ge=0, le=0.5)] = 0.25
    """Fraction of the rows of an A/B critic: those with another verdict when the labels change places. A coin has
    0.5."""
    length_bias: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Ratio: mean words by which chosen responses are longer or shorter than rejected ones, to the mean of both."""

    passes: Annotated[int, Field(ge=1, le=100)] = 10
    """Epochs: passes over the same training examples."""
    parameters_per_token: Annotated[float, Field(gt=0, le=1e9)] = 1e5
    """Ratio: trained parameters to distinct tokens that carry loss."""
    gradient_spike: Annotated[float, Field(gt=1, le=1e6)] = 20.0
    """Ratio: largest gradient norm of the optimizer steps, before clipping, to their median."""
    schedule_deviation: Annotated[float, Field(gt=0, le=0.25)] = 0.02
    """Fraction of the granted learning rate: farthest distance of a step's rate from the granted schedule."""
    loss_drop: Share = 0.01
    """Fraction of the first loss (mean of the first fifth of the steps): the least by which the last fifth is lower."""

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out defaults: a threshold that is added later does not change older registrations."""
        values: dict[str, Any] = handler(self)
        return {name: value for name, value in values.items() if value != type(self).model_fields[name].default}
