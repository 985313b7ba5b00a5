# SPDX-License-Identifier: Apache-2.0
"""Verification, and what is done with trained models: evaluation, likelihoods, sampling."""
from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _library
from ._fit import Signals
from ._keys import escaped
from ._library import UsageError, check, library

if TYPE_CHECKING:
    from .run import Run

__all__ = ["Likelihood", "Verification", "checkpoints", "evaluate", "sample", "score"]


def _bytes(text: str | os.PathLike[str] | None) -> bytes | None:
    if text is not None and "\0" in os.fspath(text):
        raise UsageError(f"{text!r}: a text has no NUL")
    return None if text is None else os.fspath(text).encode()


def _paths(text: str | os.PathLike[str] | None) -> bytes | None:
    """A path, or a text of several."""
    return _bytes(escaped(text) if isinstance(text, os.PathLike) else text)


def _fields(struct: Any) -> dict[str, Any]:
    """The fields of a struct after its size, with texts decoded."""
    found = {name: getattr(struct, name) for name, _ in struct._fields_[1:]}
    return {name: value.decode(errors="replace") if isinstance(value, bytes) else value
            for name, value in found.items()}


class Verification:
    """The result of Run.verify: print it, or read its comparisons.

    `comparisons` has a dict for each comparison: the first was made in fp64, a second one in the
    run's own precision. Its errors are max|a - b| / max|b| of the layout's tensor a and the single
    rank's b: worst (at worst_at), loss, gradients, weights, states, reports, validation. NaN means
    "not compared". With several processes only rank 0 has results.
    """

    def __init__(self, run: Run, **options: Any) -> None:
        handle = ctypes.c_void_p()
        with run._use() as opened:
            check(library.echelon_verify(opened, _library.VerifyOptions(**options),
                                         ctypes.byref(handle)))
        try:
            self.text: str = library.echelon_verification_text(handle).decode()
            self.comparisons: list[dict[str, Any]] = []
            for index in range(library.echelon_verification_count(handle)):
                found = _library.Comparison()
                check(library.echelon_verification_at(handle, index, ctypes.byref(found)))
                self.comparisons.append(_fields(found) | {
                    name: bool(getattr(found, name)) for name in ("passed", "ill_conditioned")})
        finally:
            library.echelon_verification_free(handle)

    @property
    def passed(self) -> bool:
        """True if every comparison is within its tolerance."""
        return all(comparison["passed"] for comparison in self.comparisons)

    def __str__(self) -> str:
        return self.text


def evaluate(path: str | os.PathLike[str], data: str | os.PathLike[str], *,
             split: str | None = None, samples: int = 0, batch: int = 0,
             tokenizer: str | os.PathLike[str] | None = None, device: str | None = None,
             logits: str | os.PathLike[str] | None = None,
             plugins: str | os.PathLike[str] | None = None,
             parallel: str | None = None) -> dict[str, Any]:
    """The loss of a trained model, as `echelon eval` computes it.

    The path is a run directory, a folder of checkpoints, a checkpoint, or a Hugging Face folder.
    Data are named as in data.train. A split has shares as in data.split; the third is evaluated.
    Only the first `samples` are evaluated (0: all), `batch` of them at a time (0: 8). The file
    `logits` is new and gets the logits at each position. Plugins are the run's, as in
    training.plugins. `parallel` names the ranks, which are threads, as in "tensor=2 pipeline=2".
    Returns loss (mean, in nats), perplexity, bits_per_byte (only with a known
    tokenizer), targets and samples. Of images it returns accuracy and accuracy_of_5 (the class has
    one of the five largest logits) in place of perplexity.
    """
    options = _library.EvaluateOptions(
        split=_bytes(split), tokenizer=_bytes(tokenizer), device=_bytes(device),
        logits=_bytes(logits), samples=samples, batch=batch, plugins=_paths(plugins),
        parallel=_bytes(parallel))
    found = _library.Evaluation()
    check(library.echelon_evaluate(_bytes(path), _paths(data), options, ctypes.byref(found)))
    result = {"loss": found.loss, "targets": found.targets, "samples": found.samples}
    if not found.features:
        result["perplexity"] = math.exp(found.loss) if found.loss < 700 else math.inf
    if not math.isnan(found.bits_per_byte):
        result["bits_per_byte"] = found.bits_per_byte
    if not math.isnan(found.accuracy):
        result["accuracy"] = found.accuracy
        result["accuracy_of_5"] = found.accuracy_of_5
    return result


class Likelihood(NamedTuple):
    """How likely a text is: the natural logarithm of its probability, its number of tokens, and
    whether each of them is the most likely one (None: not requested)."""

    log_likelihood: float
    tokens: int
    greedy: bool | None


def score(path: str | os.PathLike[str], texts: Iterable[tuple[str | None, str]], *,
          truncate: bool = False, greedy: bool = False, begin_of_text: bool | None = None,
          tokenizer: str | os.PathLike[str] | None = None, device: str | None = None,
          parallel: str | None = None,
          plugins: str | os.PathLike[str] | None = None) -> list[Likelihood]:
    """The likelihood of each text after its context, for pairs (context, text).

    A text after an empty context follows the begin of text. If the context is None, the text may
    have any length: all its tokens count, in windows of the model's length. Context and text are
    tokenized together.

    With truncate, a context that is too long loses its first tokens. With greedy, each token is
    also compared with the most likely one, which takes longer. begin_of_text: whether it precedes
    contexts (None: as in the training data). Other arguments are as in evaluate.
    """
    pairs = list(texts)
    if not pairs:
        return []
    array = (_library.ScoredText * len(pairs))()
    for at, (context, text) in zip(array, pairs):
        at.size = ctypes.sizeof(at)
        at.context, at.text = _bytes(context), _bytes(text)
    options = _library.ScoreOptions(
        tokenizer=_bytes(tokenizer), device=_bytes(device), parallel=_bytes(parallel),
        plugins=_paths(plugins), begin_of_text=-1 if begin_of_text is None else int(begin_of_text),
        truncate=truncate, greedy=greedy)
    found: list[Any] = [None] * len(pairs)

    def take(one: Any, _: Any) -> None:
        found[one[0].index] = Likelihood(one[0].log_likelihood, one[0].tokens,
                                         None if one[0].greedy < 0 else bool(one[0].greedy))

    with Signals().held():  # a handler that raises in `take` would lose a likelihood
        check(library.echelon_score(_bytes(path), array, len(pairs), options,
                                    _library.TAKE_LIKELIHOOD(take), None))
    return found


def sample(path: str | os.PathLike[str], prompt: str = "", *, ids: Iterable[int] | None = None,
           tokens: int = 200, temperature: float = 0.8, top_k: int = 0, top_p: float = 1.0,
           seed: int = 1, begin_of_text: bool | None = None, special_tokens: bool = False,
           tokenizer: str | os.PathLike[str] | None = None, device: str | None = None,
           plugins: str | os.PathLike[str] | None = None,
           on_token: Callable[[int, bytes], object] | None = None) -> str | list[int]:
    """Text that a trained model writes, as `echelon sample` does: the prompt and what follows.

    ids: token ids in place of the prompt; then a list of ids is returned. on_token(id, bytes) is
    called with each token, by another thread, and ends the text if it returns False. It may not
    call this package. path is as in evaluate.
    """
    written: list[int] = []
    text, failure = bytearray(), []  # type: bytearray, list[BaseException]

    def take(token: Any, _: Any) -> bool:
        part = ctypes.string_at(token[0].bytes, token[0].n) if token[0].n else b""
        written.append(token[0].id)
        text.extend(part)
        try:
            return on_token is None or on_token(token[0].id, part) is not False
        except BaseException as error:  # pylint: disable=broad-except
            failure.append(error)
            return False

    options = _library.SampleOptions(
        ids=None if ids is None else " ".join(str(int(i)) for i in ids).encode(), tokens=tokens,
        temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
        begin_of_text=-1 if begin_of_text is None else int(begin_of_text),
        special_tokens=special_tokens, tokenizer=_bytes(tokenizer), device=_bytes(device),
        plugins=_paths(plugins))
    check(library.echelon_sample(_bytes(path), _bytes(prompt), options, _library.TAKE(take), None))
    if failure:
        raise failure[0]
    return written if ids is not None else text.decode(errors="replace")


def checkpoints(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The checkpoints in a run directory or a folder of checkpoints, newest first.

    Each is a dict: path, step, complete (manifest, headers and sizes are right), problem (why not),
    bytes, ranks, loss. Run(..., **{"checkpoint.resume": path}) starts from one.
    """
    handle, found = ctypes.c_void_p(), []
    check(library.echelon_checkpoints_list(_bytes(path), ctypes.byref(handle)))
    try:
        for index in range(library.echelon_checkpoints_count(handle)):
            one = _library.Checkpoint()
            check(library.echelon_checkpoints_at(handle, index, ctypes.byref(one)))
            found.append(_fields(one) | {"complete": bool(one.complete)})
    finally:
        library.echelon_checkpoints_free(handle)
    return found
