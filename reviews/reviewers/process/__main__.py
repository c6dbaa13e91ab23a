"""``python -P -m reviews.reviewers.process``: answers messages on its standard input until that is closed.

It writes no file and may be ended at any time: what it signed is in the trail, everything else is asked for again.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO

from reviews.reviewers.process import messages
from reviews.reviewers.process.signing_rules import Duty, Refusal

MEMORY_BYTES = 4 * 2**30
OPEN_FILES = 256
LIMITS = {
    # Without confinement by the system it still cannot write a byte into a file.
    resource.RLIMIT_FSIZE: 0,
    # The memory holds keys: none of it goes into a dump.
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: OPEN_FILES,
    resource.RLIMIT_AS: MEMORY_BYTES,
}


def main() -> int:
    """Answer until the other side is gone; 1 after a line that is not a message."""
    limit()
    # Whatever a library prints goes to standard error: on standard output there are messages and nothing else.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    threading.Thread(target=end_with_the_session, args=(0,), daemon=True).start()

    def waits(seconds: float, why: str, usd: float) -> None:
        write(answers, messages.Waiting(seconds=seconds, why=why, usd=usd))
        time.sleep(seconds)

    def look(requested_look: messages.Look) -> messages.LookupAnswerMessage:
        write(answers, requested_look)
        answer = messages.read_question(sys.stdin.buffer.readline(messages.MAX_LINE_BYTES + 1))
        if not isinstance(answer, messages.LookupAnswerMessage):
            # The session breaks off by ending this process: anything else here is out of order.
            raise Refusal(f"'{answer.op}' is not an answer to a call")
        return answer

    return serve(sys.stdin.buffer, answers, Duty(os.environ, waits, look))


def serve(questions: BinaryIO, answers: BinaryIO, duty: Duty) -> int:
    """Answer line by line."""
    while line := questions.readline(messages.MAX_LINE_BYTES + 1):
        try:
            question = messages.read_question(line)
        except ValueError as error:
            # After half a line the start of the next one is unknown.
            write(answers, messages.RefusalMessage(message=str(error)))
            return 1
        write(answers, duty.answer(question))
    return 0


def write(answers: BinaryIO, answer: messages.ProcessMessage) -> None:
    """Write an answer whole; unbuffered files may take less than they are given."""
    try:
        data = memoryview(messages.line_of(answer))
    except ValueError as error:
        data = memoryview(messages.line_of(messages.RefusalMessage(message=f"the answer cannot be sent: {error}")))
    while data:
        data = data[answers.write(data) :]


def limit() -> None:
    """Take from this process what it does not need."""
    for name, most in LIMITS.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(name, (most, most))


def end_with_the_session(descriptor: int) -> None:
    """End this process when the session is gone, also in the middle of a review that takes minutes."""
    waiting = select.poll()
    waiting.register(descriptor, 0)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in waiting.poll()):
        pass
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
