#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights as NumPy arrays and PyTorch tensors of every type, and back; skips (77) without PyTorch.

    check_torch.py ECHELON LIBRARY
"""
import sys

try:
    import numpy
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import unittest

from check_python import Case, echelon

NAME = "model.layers.0.mlp.up_proj.weight"


class Torch(Case):
    def training(self, **keys):
        return self.run_of("run", echelon.Grid(tensor=2), **{
            "model.architecture": "llama", **keys}).train()

    def test_both_are_equal(self):
        seen = set()
        for number, keys in enumerate(({}, {"precision.compute": "fp64"},
                                       {"optimizer.name": "adamw8", "optimizer.block": 16})):
            with self.training(**{"log.directory": self.folder / f"{number}", **keys}) as training:
                training.step()
                for tensors in (training.weights, training.states):
                    for name in tensors:
                        array, tensor = tensors[name], tensors.torch(name)
                        seen.add(tensor.dtype)
                        self.assertEqual(tuple(tensor.shape), array.shape)
                        self.assertTrue(numpy.array_equal(tensor.numpy(), array))
        self.assertEqual(seen, {torch.float32, torch.float64, torch.uint8})

    def test_assignment(self):
        with self.training() as training:
            weights = training.weights
            shape = weights.shape(NAME)
            values = torch.arange(shape[0] * shape[1], dtype=torch.float32).reshape(shape)
            for given in (values, values.double(), values.t().contiguous().t(), values.numpy(),
                          values.numpy().astype("f8"), torch.nn.Parameter(values),
                          values.numpy().tobytes(), memoryview(values.numpy())):
                weights[NAME] = torch.zeros(shape)
                weights[NAME] = given
                self.assertTrue(torch.equal(weights.torch(NAME), values))
            for wrong in (values.t(), values.numpy().T, memoryview(values.numpy().T.copy()),
                          values[0]):
                with self.assertRaisesRegex(echelon.UsageError, "has the shape"):
                    weights[NAME] = wrong
            with self.assertRaisesRegex(echelon.UsageError, "bytes, not"):
                weights[NAME] = values.numpy().tobytes()[4:]
            with self.assertRaisesRegex(echelon.UsageError, "not a list"):
                weights[NAME] = [1.0]
            self.assertTrue(torch.equal(weights.torch(NAME), values))

    def test_no_copies(self):
        """A read is shared with the tensor, and what is assigned is not copied first."""
        with self.training() as training:
            read, writes = training.weights._read, []
            buffers = []

            def remember(name):
                buffers.append(read(name))
                return buffers[-1]
            weights = training.weights
            weights._read = remember
            tensor, array = weights.torch(NAME), weights[NAME]
            for shared, buffer in zip((tensor, array), buffers):
                shared[0, 0] = 42
                self.assertEqual(memoryview(buffer).cast("f")[0], 42)
            write = echelon.library.echelon_tensor_write

            class Library:
                def __getattr__(self, name):
                    return getattr(echelon.library, name)

                def echelon_tensor_write(self, handle, index, start, size):
                    writes.append(start)
                    return write(handle, index, start, size)
            tensors = sys.modules["echelon.tensors"]
            tensors.library = Library()
            try:
                weights[NAME] = tensor
                weights[NAME] = array
            finally:
                tensors.library = echelon.library
            self.assertEqual(writes, [tensor.data_ptr(), array.ctypes.data])

    def test_bf16(self):
        """NumPy has no bf16: exact as float32, and rounded as PyTorch rounds."""
        narrow, widen = (getattr(sys.modules["echelon.tensors"], name)
                         for name in ("_narrow", "_widen"))
        bits = torch.arange(-2**15, 2**15, dtype=torch.int32).to(torch.int16)
        every = bits.view(torch.bfloat16)
        wide = widen(bits.numpy().view(numpy.uint16))
        self.assertTrue(torch.equal(torch.from_numpy(wide).isnan(), every.isnan()))
        number = ~every.isnan()
        self.assertTrue(torch.equal(torch.from_numpy(wide)[number], every.float()[number]))
        generator = torch.Generator().manual_seed(1)
        words = torch.randint(-2**31, 2**31, (1000000,), generator=generator).to(torch.int32)
        values = torch.cat([words.view(torch.float32), every.float()])
        ours = torch.from_numpy(narrow(values.numpy()).view(numpy.int16)).view(torch.bfloat16)
        theirs = values.bfloat16()
        self.assertTrue(torch.equal(ours.isnan(), theirs.isnan()))
        self.assertTrue(torch.equal(ours[~ours.isnan()].view(torch.int16),
                                    theirs[~ours.isnan()].view(torch.int16)))

    def test_types(self):
        """Every type of echelon.h maps to types of the same size."""
        types = sys.modules["echelon.tensors"]._TYPES
        self.assertEqual(set(types), {"fp32", "bf16", "fp16", "fp64", "uint8"})
        for kind, theirs in types.values():
            size = torch.empty(0, dtype=getattr(torch, theirs)).element_size()
            self.assertEqual(numpy.dtype(kind or "H").itemsize, size)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
