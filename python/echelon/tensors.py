# SPDX-License-Identifier: Apache-2.0
"""Weights, states and gradients of a training, for NumPy and PyTorch. Importing this imports
neither."""
from __future__ import annotations

import ctypes
import difflib
import math
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _library
from ._library import UsageError, check, library

if TYPE_CHECKING:
    import torch

    from .run import Training

# Types of tensors: as NumPy and memoryview have them (None: neither does), and as PyTorch does.
_TYPES = {"fp32": ("f", "float32"), "fp64": ("d", "float64"), "fp16": ("e", "float16"),
          "uint8": ("B", "uint8"), "bf16": (None, "bfloat16")}

_GRADIENT = "gradient"  # echelon_tensor.state


def _widen(bits: Any) -> Any:
    """bf16, as uint16, to a float32 array of the same values."""
    import numpy
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def _narrow(values: Any) -> Any:
    """Floats to bf16, as uint16, rounded to nearest, ties to even."""
    import numpy
    wide = numpy.ascontiguousarray(values, numpy.float32)
    bits = wide.view(numpy.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
    return numpy.where(numpy.isnan(wide), numpy.uint16(0x7FC0), rounded)


class Tensors(Mapping[str, Any]):
    """Parameters, the optimizer's states, or the last step's gradients, by name: whole tensors
    under any layout. Made by Training.weights, Training.states and Training.gradients.

    weights[NAME] is a NumPy array of the tensor's shape and type; bf16 comes as float32. Without
    NumPy it is a memoryview of the shape, in which fp16 and bf16 are 16-bit words.
    weights.torch(NAME) is a tensor of PyTorch on the CPU.

    Each of them is a copy, which nothing else uses. Assign to an item to change the tensor: an
    array, a PyTorch tensor on any device, or bytes; gradients can only be read. States are named
    NAME.STATE, as "lm_head.weight.exp_avg", and gradients as their parameters are. With several
    processes each of them reads and assigns, in the same order.
    """

    def __init__(self, training: Training, kind: str) -> None:
        self._training = training
        self._index: dict[str, int] = {}
        self._info: dict[str, _library.Tensor] = {}
        with training._use() as handle:
            for index in range(library.echelon_tensor_count(handle)):
                info = _library.Tensor()
                check(library.echelon_tensor_at(handle, index, ctypes.byref(info)))
                state = info.state.decode()
                if kind != {"": "weights", _GRADIENT: "gradients"}.get(state, "states"):
                    continue
                name = info.name.decode() + ("." + state if kind == "states" else "")
                self._index[name], self._info[name] = index, info

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def _known(self, name: str) -> str:
        if name not in self._index:
            near = difflib.get_close_matches(str(name), self._index, 1)
            raise KeyError(f"{name}: no such tensor; " +
                           (f"did you mean {near[0]}?" if near else f"there are {len(self)}"))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the whole tensor, in elements."""
        info = self._info[self._known(name)]
        return tuple(info.shape[:info.dims])

    def dtype(self, name: str) -> str:
        """The type of an element: fp32, fp64, bf16, fp16 or uint8."""
        return self._info[self._known(name)].dtype.decode()

    def _read(self, name: str) -> bytearray:
        index, size = self._index[self._known(name)], self._info[name].bytes
        data = bytearray(size)
        with self._training._use() as handle:
            view = (ctypes.c_char * size).from_buffer(data) if size else None
            check(library.echelon_tensor_read(handle, index, view, size))
        return data

    def __getitem__(self, name: str) -> Any:
        """A NumPy array of the tensor, or without NumPy a memoryview."""
        data, shape, kind = self._read(name), self.shape(name), _TYPES[self.dtype(name)][0]
        try:
            import numpy
        except ImportError:
            words: Any = "H" if kind in (None, "e") else kind
            return memoryview(data).cast(words, shape)
        found = numpy.frombuffer(data, kind or "H").reshape(shape)
        return found if kind else _widen(found)

    def torch(self, name: str) -> torch.Tensor:
        """The tensor as PyTorch has it, of the same shape and type, on the CPU. It shares the
        memory that the read filled."""
        import torch
        kind = getattr(torch, _TYPES[self.dtype(name)][1])
        return torch.frombuffer(self._read(name), dtype=kind).reshape(self.shape(name))

    def _check_shape(self, name: str, shape: Any) -> None:
        if tuple(shape) != self.shape(name):  # no broadcasting
            raise UsageError(f"{name} has the shape {self.shape(name)}, not {tuple(shape)}")

    def __setitem__(self, name: str, value: Any) -> None:
        """Replaces the tensor on all ranks. Contiguous values on the CPU and of the tensor's own
        type are not copied first."""
        index, (kind, torch_kind) = self._index[self._known(name)], _TYPES[self.dtype(name)]
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch and isinstance(value, torch.Tensor):
            self._check_shape(name, value.shape)
            value = value.detach().to("cpu", getattr(torch, torch_kind)).contiguous()
            start, size = value.data_ptr(), value.numel() * value.element_size()
        elif numpy and isinstance(value, numpy.ndarray):
            self._check_shape(name, value.shape)
            value = numpy.ascontiguousarray(value, kind) if kind else _narrow(value)
            start, size = value.ctypes.data, value.nbytes
        else:
            try:
                view = memoryview(value)
            except TypeError:
                raise UsageError(f"{name}: assign a NumPy array, a PyTorch tensor or bytes, not a "
                                 f"{type(value).__name__}") from None
            if view.ndim != 1:
                self._check_shape(name, view.shape)
            value = view.tobytes()
            start, size = ctypes.cast(value, ctypes.c_void_p), len(value)
        with self._training._use() as handle:
            check(library.echelon_tensor_write(handle, index, start, size))

    def __repr__(self) -> str:
        elements = sum(math.prod(self.shape(name)) for name in self)
        return f"<{len(self)} tensors, {elements} elements>"
