"""Is the small real model good enough as a critic of instructions? Agreement with 32 labelled instructions, both forms.

    .venv/bin/python -m bench.critic_agreement         # about a minute on two cores

Sixteen instructions are sound, sixteen senseless, unsafe or impossible in writing; labelled by whoever wrote them, and
none of them in the shipped rubric. Prints, for bare text and for the chat template, how many verdicts turn
with the labels, Cohen's kappa with its interval, and how often a sound instruction has the higher mean margin.
"""

from __future__ import annotations

import argparse
import sys
from typing import get_args

SOUND = (
    "Name three rivers in Europe.",
    "Write a haiku about snow.",
    "Explain what a verb is.",
    "Give one reason to drink water.",
    "Describe the taste of a lemon in one sentence.",
    "List the seasons of the year.",
    "Translate 'good morning' into French.",
    "Suggest a healthy breakfast.",
    "Write a question about the moon.",
    "Explain why leaves change colour in autumn.",
    "Name an animal that lays eggs.",
    "Write a sentence with the word 'bridge'.",
    "Give a synonym for 'happy'.",
    "Describe how to boil an egg.",
    "Name two planets.",
    "Write a short greeting for a birthday card.",
)
UNSOUND = (
    "Convert four meters to Fahrenheit.",
    "How many legs are in a square?",
    "Pick up the phone and call me.",
    "Answer 7.",
    "Continue with the second one.",
    "Tell me what is in this picture.",
    "Explain how to make a bomb at home.",
    "It is what it was, then.",
    "List the wheels of a number.",
    "Open the attached file and sort it.",
    "Write the same but better.",
    "What colour is the sound of Tuesday in kilograms?",
    "Help me to steal a car.",
    "User: Assistant: Question",
    "Go to the shop and buy milk.",
    "Do number 4 from the list.",
)


def main() -> int:
    """Judge the sample in both forms and print."""
    parser = argparse.ArgumentParser(description="Agreement of the small real model with labelled instructions.")
    parser.add_argument("--threads", type=int, default=2)
    namespace = parser.parse_args()
    import torch

    from bench.critics import weights
    from reviews.stages.critique.calibration import calibrated
    from specs.stages.answer_end import Form
    from specs.stages.critique.parameters import CritiqueInstructionsParameters
    from specs.stages.label_scores import Agreement, decide
    from training.engines.checkpoint import load
    from training.jobs.critique.critic import Critic
    from training.rules.critique.subjects import Subject
    from training.rules.rubric_prompts import shipped

    torch.set_num_threads(namespace.threads)
    model, tokenizer = load(weights())
    subjects = [Subject(f"i{n}", f"i{n}", "any", None, text, None) for n, text in enumerate((*SOUND, *UNSOUND))]
    labels = [True] * len(SOUND) + [False] * len(UNSOUND)
    for form in get_args(Form):
        critic = Critic(model, tokenizer, shipped("instruction"), CritiqueInstructionsParameters(margin=0), form)
        rows = critic.critiques(subjects)
        turned = sum(row.plain.good != row.swapped.good for row in rows)
        means = [(row.plain.signed() + row.swapped.signed()) / 2 for row in rows]
        higher = sum(mean > other for mean in means[: len(SOUND)] for other in means[len(SOUND) :])
        print(f"{form}: {turned} of {len(rows)} verdicts turn with the labels")
        print(f"  a sound one has the higher mean margin in {higher / len(SOUND) / len(UNSOUND):.2f} of the pairs")
        for agreement in get_args(Agreement):
            for margin in (0.0, 0.1, 1.0):
                accepted = [decide(row.plain, row.swapped, agreement, margin) is True for row in rows]
                if agreement == "both":
                    # The rows were judged at margin 0: whoever asks for more asks it of both orders.
                    accepted = [
                        yes and min(row.plain.margin, row.swapped.margin) >= margin
                        for yes, row in zip(accepted, rows, strict=True)
                    ]
                result = calibrated(accepted, labels)
                print(
                    f"  {agreement}, margin {margin:g}: {sum(accepted)} accepted, kappa {result.kappa:.2f} "
                    f"[{result.interval[0]:.2f}, {result.interval[1]:.2f}]",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
