# SPDX-License-Identifier: Apache-2.0
"""Reverse-mode differentiation of fp64 arrays: what an oracle needs to get gradients from
equations.

A `Value` is an array and, for each value it was computed from, a function that maps the gradient of
the result to that of the operand. `gradients` walks these backwards.
"""
import math

import numpy as np


class Value:
    __array_priority__ = 1

    def __init__(self, data, parents=()):
        self.data = np.asarray(data, dtype=np.float64)
        self.parents = parents  # pairs (value, function from the result's gradient to the value's)

    shape = property(lambda self: self.data.shape)

    def __add__(self, other):
        other = of(other)
        return Value(self.data + other.data, ((self, lambda g: g), (other, lambda g: g)))

    def __mul__(self, other):
        other = of(other)
        return Value(self.data * other.data,
                     ((self, lambda g: g * other.data), (other, lambda g: g * self.data)))

    def __matmul__(self, other):
        a, b = self.data, of(other).data
        return Value(a @ b, ((self, lambda g: g @ b.swapaxes(-1, -2)),
                             (of(other), lambda g: a.swapaxes(-1, -2) @ g)))

    def __pow__(self, power):
        return Value(self.data ** power, ((self, lambda g: g * power * self.data ** (power - 1)),))

    def __getitem__(self, index):
        def back(g):
            whole = np.zeros_like(self.data)
            np.add.at(whole, index, g)
            return whole
        return Value(self.data[index], ((self, back),))

    __radd__, __rmul__ = __add__, __mul__
    __neg__ = lambda self: self * -1.0
    __sub__ = lambda self, other: self + -of(other)
    __rsub__ = lambda self, other: of(other) - self
    __truediv__ = lambda self, other: self * of(other) ** -1.0
    __rtruediv__ = lambda self, other: of(other) * self ** -1.0

    def sum(self, axis=None, keepdims=False):
        def back(g):
            if axis is not None and not keepdims:
                g = np.expand_dims(g, axis)
            return np.broadcast_to(g, self.shape)
        return Value(self.data.sum(axis=axis, keepdims=keepdims), ((self, back),))

    def mean(self, axis=None, keepdims=False):
        total = self.sum(axis, keepdims)
        return total * (total.data.size / self.data.size)

    def reshape(self, *shape):
        return Value(self.data.reshape(*shape), ((self, lambda g: g.reshape(self.shape)),))

    def transpose(self, *axes):
        return Value(self.data.transpose(axes),
                     ((self, lambda g: g.transpose(np.argsort(axes))),))

    @property
    def T(self):
        return self.transpose(1, 0)


def of(x):
    return x if isinstance(x, Value) else Value(x)


def elementwise(function, derivative):
    """A function of one number with its derivative as a function of argument and result."""
    def apply(x):
        y = function(x.data)
        return Value(y, ((x, lambda g: g * derivative(x.data, y)),))
    return apply


exp = elementwise(np.exp, lambda x, y: y)
log = elementwise(np.log, lambda x, y: 1 / x)
tanh = elementwise(np.tanh, lambda x, y: 1 - y * y)
relu = elementwise(lambda x: np.maximum(x, 0), lambda x, y: x > 0)
sigmoid = elementwise(lambda x: 1 / (1 + np.exp(-x)), lambda x, y: y * (1 - y))
softplus = elementwise(lambda x: np.logaddexp(x, 0), lambda x, y: 1 / (1 + np.exp(-x)))
normal_cdf = elementwise(np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2))),
                         lambda x, y: np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def concatenate(values, axis):
    ends = np.cumsum([v.shape[axis] for v in values])[:-1]
    return Value(np.concatenate([v.data for v in values], axis),
                 tuple((v, lambda g, i=i: np.split(g, ends, axis)[i])
                       for i, v in enumerate(values)))


def softmax(x):
    """Along the last axis; minus infinity becomes 0."""
    e = exp(x - x.data.max(axis=-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def fitted(gradient, shape):
    """The gradient of an operand that was broadcast: summed over the axes that it lacks."""
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    wide = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
    return gradient.sum(axis=wide, keepdims=True) if wide else gradient


def gradients(result, leaves):
    """The gradients of a scalar with respect to the leaves, zeros for leaves that it ignores."""
    order, seen, stack = [], set(), [(result, False)]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((parent, False) for parent, _ in value.parents)
    grads = {id(result): np.ones_like(result.data)}
    for value in reversed(order):
        if id(value) not in grads:
            continue
        for parent, back in value.parents:
            part = fitted(np.asarray(back(grads[id(value)]), dtype=np.float64), parent.shape)
            grads[id(parent)] = grads.get(id(parent), 0) + part
    return [grads.get(id(leaf), np.zeros_like(leaf.data)) for leaf in leaves]
