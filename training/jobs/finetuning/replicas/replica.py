"""One replica: a trainer whose raw optimizer torchft's DiLoCo listens to.

The pseudo-gradient, the weights of the last synchronisation minus the replica's own, is minus what its steps changed;
the outer SGD subtracts the mean of them, so the model moves where the replicas moved, without any other negation.
Weights that are not of float32 have masters of float32, which are what is synchronised; the trainer sees them rounded.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from specs.stages.finetuning.distributed import DistributedTraining, ReplicaRound
from training.compat import torchft_internals
from training.compat.trl_internals import count_pass
from training.jobs.finetuning.replicas.course import BatchRecord
from training.jobs.finetuning.replicas.listening import store_at
from training.jobs.finetuning.replicas.outer_weights import (
    masters_of,
    moved_back,
    norm_of,
    outer_of,
    save_outer,
    trained_parameters,
)
from training.jobs.finetuning.replicas.replica_files import (
    OUTER,
    RoundRecord,
    make_arrival_path,
    sha256_of,
    write_json,
    write_round,
)

HERE = "127.0.0.1"
WAIT = timedelta(hours=12)
"""How long a replica waits for others: the coordinator ends what waits in vain."""
ASK_AGAIN = timedelta(seconds=5)
"""How long after a lost lighthouse a waiting replica asks the next; without it torchft waits in vain to the end."""
EXCHANGE = timedelta(seconds=60)
"""How long an exchange between replicas may take once all are there."""


class SyncFailure(Exception):
    """A synchronisation did not take place, so the round has to be done again."""


class Replica:
    """Synchronises a trainer's trained weights; :meth:`attach` before it trains."""

    def __init__(
        self, number: int, process: int, arguments: DistributedTraining, lighthouse: str, folder: Path, host: str = HERE
    ) -> None:
        """``host`` is the address at which other replicas reach this one."""
        self.number, self.process, self.distributed = number, process, arguments
        self._lighthouse, self._folder, self._host = lighthouse, folder, host
        self.sync = 0
        self.skip_until = 0
        self._step, self._inner, self._round_step = 0, 0, 1
        self._filling, self._healed, self._exchanging = False, False, False
        self._pending: ReplicaRound | None = None
        self._hooks: list[Any] = []
        self._before, self._drift, self._arrived = "", 0.0, 0.0
        self._most = 0

    def attach(self, trainer: Any, seen_values: BatchRecord, resumes: Path | None) -> None:
        """Have a trainer synchronise; ``resumes`` is the saved step that it begins with."""
        from transformers import TrainerCallback

        replica = self

        class First(TrainerCallback):
            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                saved = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                save_outer(saved, replica.outer, replica.list_separate_masters())

        class Last(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                replica.begin(trainer, state.global_step, state.max_steps, resumes)

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                replica.end_step(state, control)

            def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
                replica.keep_round(state, seen_values)

        # The outer state must be in a saved step before the trainer's own callback marks it as whole.
        trainer.callback_handler.callbacks.insert(0, First())
        trainer.add_callback(Last())
        step = trainer.training_step

        def training_step(model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            trainer.idle = bool(self.skip_until)
            if self.skip_until:
                # A trainer on rollouts counts its passes itself.
                count_pass(trainer)
                return next(model.parameters()).new_zeros(())
            return step(model, inputs, *rest, **named)

        trainer.training_step = training_step

    def begin(self, trainer: Any, step: int, steps: int, resumes: Path | None) -> None:
        """Join the others, with the weights and the outer state of the synchronisation after ``step``."""
        import torch
        from torchft.local_sgd import DiLoCo
        from torchft.manager import Manager
        from torchft.process_group import ProcessGroupGloo

        self._weights = trained_parameters(trainer.model)
        self._masters = masters_of(self._weights, resumes)
        self._optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        self._step, self._most, self.sync = step, steps, self.distributed.rounds_of(step)
        self.outer = outer_of(list(self._masters.values()), self.distributed)
        if resumes is not None:
            self.outer.load_state_dict(torch.load(resumes / OUTER, weights_only=True))
        torchft_internals.listen_at(self._host)
        self._store = store_at(self._host)
        self.manager: Any = Manager(
            pg=ProcessGroupGloo(timeout=EXCHANGE),
            load_state_dict=self._take_over,
            state_dict=self._hand_over,
            min_replica_size=self.distributed.quorum,
            use_async_quorum=False,
            # All begin with the same weights, so no first round is thrown away for those of one of them.
            init_sync=False,
            replica_id=f"replica_{self.number}",
            store_addr=self._host,
            store_port=self._store.port,
            rank=0,
            world_size=1,
            lighthouse_addr=self._lighthouse,
            hostname=self._host,
            timeout=EXCHANGE,
            quorum_timeout=WAIT,
            quorum_retries=WAIT // ASK_AGAIN,
            connect_timeout=EXCHANGE,
        )
        self.manager.load_state_dict({"step": self.sync, "batches_committed": self.sync * self.distributed.quorum})
        # Only what is trained: with adapters the base is neither copied nor sent.
        fragment = torch.nn.ParameterList(self._masters.values())
        self.diloco: Any = DiLoCo(self.manager, [fragment], self._optimizer, self.outer, self.distributed.sync_every)
        self._listen()
        self._begin_round()
        facts = {"process": self.process, "sync": self.sync, "step": step, "weights": self._start}
        write_json(self._folder / "began" / f"{self.process}.json", facts)

    @contextmanager
    def rounds(self) -> Generator[None]:
        """Raise Uncommitted where a synchronisation fails, because the others or the lighthouse are not reached."""
        try:
            yield
        except SyncFailure:
            raise
        except Exception as error:
            if not self._exchanging:
                raise
            message = f"synchronisation {self.sync + 1} failed: {type(error).__name__}: {str(error)[:300]}"
            raise SyncFailure(message) from error

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
            for _ in range(self.distributed.sync_every - self._inner):
                self._optimizer.step()

    def keep_round(self, state: Any, seen_values: BatchRecord) -> None:
        """Write a synchronised round once its last step is logged."""
        row = self._pending
        if row is None or state.log_history[-1].get("step") != row.last_step:
            return
        own = range(row.first_step, row.last_step + 1)
        steps = [value for value in state.log_history if "loss" in value and value["step"] in own]
        row = row.model_copy(update={name: sum(step[name] for step in steps) for name in ("tokens", "sequences")})
        write_round(self._folder, RoundRecord(row, steps, seen_values.facts()))
        self._pending = None

    def settings(self) -> dict[str, Any]:
        """Return the settings read back from the objects that synchronised."""
        group = self.outer.param_groups[0]
        return {
            "sync_every": torchft_internals.sync_every(self.diloco),
            "outer": {"lr": group["lr"], "momentum": group["momentum"]},
            "quorum": torchft_internals.min_replicas(self.manager),
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
        self._begun = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._start = sha256_of(self._weights)

    def _before_sync(self, *_: Any) -> None:
        self._inner += 1
        if not self._filling:
            self._step += 1
        if self._inner == self.distributed.sync_every:
            self._exchanging = True
            make_arrival_path(self._folder, self.process, self.sync + 1).touch()
            self._before, self._arrived = sha256_of(self._weights), time.perf_counter()
            moved = {name: moved_back(self._begun[name], weight) for name, weight in self._weights.items()}
            self._drift = norm_of(moved)
            for name, master in self.list_separate_masters().items():
                # What is sent is what the steps changed, without the rounding of the weights they began with.
                master.data.sub_(moved[name])

    def _after_sync(self, *_: Any) -> None:
        if self._inner < self.distributed.sync_every:
            return
        for name, master in self.list_separate_masters().items():
            self._weights[name].data.copy_(master.data)
        done = self.manager.current_step()
        if done <= self.sync:
            raise SyncFailure(f"synchronisation {self.sync + 1} was not committed")
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
            quorum=torchft_internals.quorum_id(self.manager),
            participants=self.manager.num_participants(),
            healed=self._healed,
            drift=self._drift,
            bytes=sum(master.numel() * master.element_size() for master in self._masters.values()),
            seconds=round(time.perf_counter() - self._arrived, 4),
        )
        self.sync, self._exchanging = done, False
        count = self.distributed.last_step(done, self._most)
        if count > self._step:
            # The others are further: their steps are in the weights that were taken over.
            self._stop_listening()
            self.skip_until = count
        else:
            self._begin_round()

    def list_separate_masters(self) -> dict[str, Any]:
        """Return the masters that are not the trained weights themselves."""
        return {name: master for name, master in self._masters.items() if master is not self._weights[name]}

    def _hand_over(self) -> dict[str, Any]:
        weights, masters = (
            {name: value.detach().clone() for name, value in tensors.items()}
            for tensors in (self._weights, self.list_separate_masters())
        )
        return {"weights": weights, "masters": masters, "inner": self._optimizer.state_dict()}

    def _take_over(self, state: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(state["weights"][name])
            for name, value in self.list_separate_masters().items():
                value.copy_(state["masters"][name])
        self._optimizer.load_state_dict(state["inner"])
        self._healed, self._before = True, sha256_of(self._weights)
