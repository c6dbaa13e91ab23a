"""One replica: a trainer whose raw optimizer torchft's DiLoCo listens to.

The pseudo-gradient, the weights of the last synchronisation minus the replica's own, is minus what its steps changed;
the outer SGD subtracts the mean of them, so the model moves where the replicas moved, without any other negation.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from specs.stages.finetuning.distributed import Distributed, ReplicaRound
from training.jobs.finetuning.replicas.replica_files import OUTER, Round, sha256_of, write_json, write_round
from training.jobs.finetuning.weight_sketch import trained

HERE = "127.0.0.1"
WAIT = timedelta(hours=12)
"""How long a replica waits for others: the coordinator ends what waits in vain."""
EXCHANGE = timedelta(seconds=60)
"""How long an exchange between replicas may take once all are there."""


class Uncommitted(Exception):
    """A synchronisation did not take place, so the round has to be done again."""


class Unfit(Exception):
    """The weights cannot be synchronised as they are."""


class Replica:
    """Synchronises a trainer's trained weights; :meth:`attach` before it trains."""

    def __init__(self, number: int, process: int, given: Distributed, lighthouse: str, folder: Path) -> None:
        self.number, self.process, self.given = number, process, given
        self._lighthouse, self._folder = lighthouse, folder
        self.sync = 0
        self.skip_until = 0
        self._step, self._inner, self._round_step = 0, 0, 1
        self._filling, self._healed = False, False
        self._pending: ReplicaRound | None = None
        self._hooks: list[Any] = []
        self._before, self._drift, self._arrived = "", 0.0, 0.0
        self._most = 0

    def attach(self, trainer: Any, proof: Any, resumes: Path | None) -> None:
        """Have a trainer synchronise; ``resumes`` is the saved step that it begins with."""
        from transformers import TrainerCallback

        replica = self

        class First(TrainerCallback):
            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                replica.save_outer(Path(args.output_dir) / f"checkpoint-{state.global_step}")

        class Last(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                replica.begin(trainer, state.global_step, state.max_steps, resumes)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                replica.end_step(state, control)

            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
                replica.keep_round(state, proof)

        # The outer state must be in a saved step before the trainer's own callback marks it as whole.
        trainer.callback_handler.callbacks.insert(0, First())
        trainer.add_callback(Last())
        step = trainer.training_step

        def training_step(model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            if self.skip_until:
                return next(model.parameters()).new_zeros(())
            return step(model, inputs, *rest, **named)

        trainer.training_step = training_step

    def begin(self, trainer: Any, step: int, steps: int, resumes: Path | None) -> None:
        """Join the others, with the weights and the outer state of the synchronisation after ``step``."""
        import torch
        from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]
        from torchft.local_sgd import DiLoCo
        from torchft.manager import Manager
        from torchft.process_group import ProcessGroupGloo

        self._weights = trained_parameters(trainer.model)
        if other := {str(one.dtype) for one in self._weights.values()} - {"torch.float32"}:
            raise Unfit(f"trained weights are {', '.join(sorted(other))}: their differences need float32")
        self._optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        self._step, self._most, self.sync = step, steps, self.given.rounds_of(step)
        self._outer = outer_of(list(self._weights.values()), self.given)
        if resumes is not None:
            self._outer.load_state_dict(torch.load(resumes / OUTER, weights_only=True))
        self._store = TCPStore(HERE, 0, is_master=True, wait_for_workers=False)
        self.manager: Any = Manager(
            pg=ProcessGroupGloo(timeout=EXCHANGE),
            load_state_dict=self._take_over,
            state_dict=self._hand_over,
            min_replica_size=self.given.quorum,
            use_async_quorum=False,
            # All begin with the same weights, so no first round is thrown away for those of one of them.
            init_sync=False,
            replica_id=f"replica_{self.number}",
            store_addr=HERE,
            store_port=self._store.port,
            rank=0,
            world_size=1,
            lighthouse_addr=self._lighthouse,
            hostname=HERE,
            timeout=EXCHANGE,
            quorum_timeout=WAIT,
            connect_timeout=EXCHANGE,
        )
        self.manager.load_state_dict({"step": self.sync, "batches_committed": self.sync * self.given.quorum})
        # Only what is trained: with adapters the base is neither copied nor sent.
        fragment = torch.nn.ParameterList(self._weights.values())
        self.diloco: Any = DiLoCo(self.manager, [fragment], self._optimizer, self._outer, self.given.sync_every)
        self._listen()
        self._begin_round()
        told = {"process": self.process, "sync": self.sync, "step": step, "weights": self._start}
        write_json(self._folder / "began" / f"{self.process}.json", told)

    def end_step(self, state: Any, control: Any) -> None:
        """Fill up the last round, and end the skipping of steps whose weights were taken over."""
        if self.skip_until:
            control.should_save &= state.global_step == self.skip_until
            if state.global_step == self.skip_until:
                self.skip_until, self._step = 0, state.global_step
                self._listen()
                self._begin_round()
        elif state.global_step == state.max_steps and self._inner:
            # A step without gradients changes nothing, and DiLoCo counts it.
            self._filling = True
            self._optimizer.zero_grad(set_to_none=True)
            for _ in range(self.given.sync_every - self._inner):
                self._optimizer.step()

    def keep_round(self, state: Any, proof: Any) -> None:
        """Write a synchronised round once its last step is logged."""
        row = self._pending
        if row is None or state.log_history[-1].get("step") != row.last_step:
            return
        own = range(row.first_step, row.last_step + 1)
        steps = [one for one in state.log_history if "loss" in one and one["step"] in own]
        row = row.model_copy(update={name: sum(one[name] for one in steps) for name in ("tokens", "sequences")})
        write_round(self._folder, Round(row, steps, proof.facts()))
        self._pending = None

    def save_outer(self, folder: Path) -> None:
        """Add the outer state to a saved step."""
        import torch

        partial = folder / f".{OUTER}"
        torch.save(self._outer.state_dict(), partial)
        partial.replace(folder / OUTER)

    def settings(self) -> dict[str, Any]:
        """Return the settings read back from the objects that synchronised."""
        group = self._outer.param_groups[0]
        return {
            "sync_every": self.diloco._sync_every,
            "outer": {"lr": group["lr"], "momentum": group["momentum"]},
            "quorum": self.manager._min_replica_size,
        }

    def leave(self) -> None:
        """Leave the others."""
        self.manager.shutdown(wait=False)

    def _listen(self) -> None:
        """Hear of the optimizer's steps before and after DiLoCo does."""
        self._hooks = [self._optimizer.register_step_post_hook(self._before_sync)]
        self.diloco.__enter__()
        self._hooks.append(self._optimizer.register_step_post_hook(self._after_sync))

    def _stop_listening(self) -> None:
        self.diloco.__exit__(None, None, None)
        for hook in self._hooks:
            hook.remove()

    def _begin_round(self) -> None:
        self._inner, self._round_step, self._healed = 0, self._step + 1, False
        self._begun = {name: one.detach().clone() for name, one in self._weights.items()}
        self._start = sha256_of(self._weights)

    def _before_sync(self, *_: Any) -> None:
        self._inner += 1
        if not self._filling:
            self._step += 1
        if self._inner == self.given.sync_every:
            self._before, self._arrived = sha256_of(self._weights), time.perf_counter()
            self._drift = _norm_of({name: one.detach() - self._begun[name] for name, one in self._weights.items()})

    def _after_sync(self, *_: Any) -> None:
        if self._inner < self.given.sync_every:
            return
        done = self.manager.current_step()
        if done <= self.sync:
            raise Uncommitted(f"synchronisation {self.sync + 1} was not committed")
        self._pending = ReplicaRound(
            sync=done,
            replica=self.number,
            process=self.process,
            first_step=self._round_step,
            last_step=self._step,
            tokens=0,
            sequences=0,
            start=self._start,
            before=self._before,
            after=sha256_of(self._weights),
            quorum=self.manager._quorum_id,
            participants=self.manager.num_participants(),
            healed=self._healed,
            drift=self._drift,
            bytes=sum(one.numel() * one.element_size() for one in self._weights.values()),
            seconds=round(time.perf_counter() - self._arrived, 4),
        )
        self.sync = done
        due = self.given.last_step(done, self._most)
        if due > self._step:
            # The others are further: their steps are in the weights that were taken over.
            self._stop_listening()
            self.skip_until = due
        else:
            self._begin_round()

    def _hand_over(self) -> dict[str, Any]:
        weights = {name: one.detach().clone() for name, one in self._weights.items()}
        return {"weights": weights, "inner": self._optimizer.state_dict()}

    def _take_over(self, state: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for name, one in self._weights.items():
                one.copy_(state["weights"][name])
        self._optimizer.load_state_dict(state["inner"])
        self._healed, self._before = True, sha256_of(self._weights)


def trained_parameters(model: Any) -> dict[str, Any]:
    """Return the trained parameters themselves, by the names under which they are saved, in order."""
    # Both in the order of the model.
    return dict(sorted(zip(trained(model), (one for one in model.parameters() if one.requires_grad), strict=True)))


def outer_of(parameters: list[Any], given: Distributed) -> Any:
    """Return the outer optimizer of such parameters."""
    import torch

    momentum = given.outer.momentum
    return torch.optim.SGD(parameters, lr=given.outer.lr, momentum=momentum, nesterov=momentum > 0)


def _norm_of(weights: dict[str, Any]) -> float:
    return sum(float(one.double().square().sum()) for one in weights.values()) ** 0.5
