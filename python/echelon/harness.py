# SPDX-License-Identifier: Apache-2.0
"""Trained models in EleutherAI's lm-evaluation-harness, which is imported here alone.

    import lm_eval
    from echelon.harness import EchelonLM
    results = lm_eval.simple_evaluate(model=EchelonLM("runs/book"), tasks=["arc_easy"])

On the command line `python -m echelon.harness` is the harness's own program, which then knows the
model `echelon`:

    python -m echelon.harness run --model echelon --model_args path=runs/book --tasks arc_easy
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError as error:
    raise ImportError(f"echelon.harness needs lm-evaluation-harness ({error}); "
                      "`pip install lm-eval` installs it") from None

from . import _library
from ._library import UsageError, check, library
from .trained import _bytes, score

__all__ = ["EchelonLM"]


@register_model("echelon")
class EchelonLM(LM):
    """A trained model of Echelon for lm-evaluation-harness.

    path, tokenizer, device, parallel and plugins are as in echelon.evaluate. add_bos_token puts the
    begin of text before every context. Contexts that are too long lose their first tokens.

    With greedy, each text is compared with what greedy decoding writes, token by token, on one
    rank. Few tasks need that (LAMBADA's accuracy does). Without it, no text is reported as greedy.
    """

    def __init__(self, path: str | os.PathLike[str], *, tokenizer: str | None = None,
                 device: str | None = None, parallel: str | None = None,
                 plugins: str | None = None, add_bos_token: bool = False, greedy: bool = True,
                 max_gen_toks: int = 256, seed: int = 1, batch_size: int | str = 1,
                 max_batch_size: int | None = None) -> None:
        super().__init__()
        self._path, self._greedy, self._tokens, self._seed = path, greedy, max_gen_toks, seed
        self._begins = bool(add_bos_token)
        self._model = {"tokenizer": tokenizer, "device": _device(device), "plugins": plugins}
        self._parallel = parallel

    def _score(self, pairs: Iterable[tuple[str | None, str]], greedy: bool) -> list[Any]:
        return score(self._path, pairs, truncate=True, greedy=greedy, begin_of_text=self._begins,
                     parallel=self._parallel, **self._model)

    def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(log-likelihood, is greedy) of each pair (context, continuation)."""
        found = self._score([request.args for request in requests], self._greedy)
        return [(one.log_likelihood, bool(one.greedy)) for one in found]

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each text as a whole, in windows of the model's length."""
        found = self._score([(None, request.args[0]) for request in requests], False)
        return [one.log_likelihood for one in found]

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """What the model writes after each context, up to the first text of `until`."""
        return [self._write(*request.args) for request in requests]

    def _write(self, context: str, options: dict[str, Any]) -> str:
        options = dict(options)
        until = options.pop("until", None) or []
        until = [until] if isinstance(until, str) else list(until)
        most = options.pop("max_gen_toks", self._tokens)
        samples = options.pop("do_sample", float(options.get("temperature", 0) or 0) > 0)
        temperature = float(options.pop("temperature", 1.0) or 0) if samples else 0.0
        chosen = _library.SampleOptions(
            tokens=most, temperature=temperature, top_k=options.pop("top_k", 0) or 0,
            top_p=options.pop("top_p", 1.0), seed=self._seed, begin_of_text=int(self._begins),
            **{name: _bytes(value) for name, value in self._model.items()})
        if options:
            raise UsageError(f"echelon cannot generate with {', '.join(sorted(options))}; it takes "
                             "until, max_gen_toks, do_sample, temperature, top_k and top_p")
        written, stops = bytearray(), [stop.encode() for stop in until if stop]

        def take(token: Any, _: Any) -> bool:
            if not token[0].is_prompt and token[0].n:
                written.extend(ctypes.string_at(token[0].bytes, token[0].n))
            return not any(stop in written for stop in stops)

        check(library.echelon_sample(_bytes(self._path), _bytes(context), chosen,
                                     _library.TAKE(take), None))
        ends = [at for at in (written.find(stop) for stop in stops) if at >= 0]
        return bytes(written[:min(ends, default=len(written))]).decode(errors="replace")


def _device(name: str | None) -> str | None:
    """The harness's `cuda:0` is this library's `cuda`, whose ranks choose their GPUs."""
    return name.split(":")[0] if name else None


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
