"""How long does a model server take to review the design gate of the demo? Prints seconds, tokens and what came of it.

    .venv/bin/python -m bench.local_review http://127.0.0.1:8000/v1 --model NAME [--api chat] [--runs 3]

The server is yours and its tokens count as free; a key, if it wants one, is read from PEERGATE_REVIEWER_KEY.
"""

from __future__ import annotations

import argparse

from reviews.gate.packet import build_design_packet
from reviews.gate.packet_derivation import check_design_files
from reviews.reviewers.vendors.review_model import model_reviewer
from specs.digests import digest_value
from specs.session.loading import find_spec, load_spec
from specs.trail.verdict import Packet
from specs.vendors.parties import Effort, Efforts, Reviewer, TokenPrice


def demo_packet() -> Packet:
    """Return the packet of the demo's design gate, as a session would show it."""
    resolved = load_spec(find_spec("demo"))
    checks = check_design_files(resolved)
    digest = digest_value([check.model_dump(mode="json") for check in checks])
    return build_design_packet(resolved, checks, checks_digest=digest)


def main() -> int:
    """Ask and print; exit code 1 when no run gave a verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("base_url")
    parser.add_argument("--model", required=True)
    parser.add_argument("--api", choices=("responses", "chat", "chat_json_object"), default="responses")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--max-output-tokens", type=int, default=2000)
    namespace = parser.parse_args()
    effort = Effort(timeout_s=3600, max_cost_usd=1, max_output_tokens=namespace.max_output_tokens)
    reviewer = model_reviewer(
        Reviewer(
            vendor="openai",
            model=namespace.model,
            base_url=namespace.base_url,
            api=namespace.api,
            usd_per_million_tokens=TokenPrice(input=0, output=0),
            effort=Efforts(low=effort, medium=effort, high=effort),
        )
    )
    packet = demo_packet()
    digest = packet.content_digest()
    print(f"packet: {len(packet.canonical())} bytes")
    verdicts = 0
    for number in range(1, namespace.runs + 1):
        review = reviewer.ask(packet, digest)
        usage = review.exchange.usage or {}
        tokens = f"{usage.get('input_tokens', '?')} tokens in, {usage.get('output_tokens', '?')} out"
        became = f"approve: {review.value.approve}" if review.value else str(review.error and review.error.message)
        print(f"run {number}: {review.exchange.seconds:.1f} s, {tokens}, {became}", flush=True)
        verdicts += review.value is not None
    return 0 if verdicts else 1


if __name__ == "__main__":
    raise SystemExit(main())
