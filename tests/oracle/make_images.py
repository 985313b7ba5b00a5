#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/layer/recorded_images.h: loss and gradients of a small convolutional network.

PyTorch computes them in fp64. Inputs and parameters are sines of their indices, as in
tests/layer/test_images.c.

    tests/oracle/make_images.py > tests/layer/recorded_images.h
"""
import math

import torch

B, C, H, W, O, CLASSES = 2, 3, 6, 5, 4, 5


def values(stream, *shape):
    n = math.prod(shape)
    made = [math.sin(1 + stream + 0.7 * i) for i in range(n)]
    return torch.tensor(made, dtype=torch.float64).reshape(shape).requires_grad_()


def show(name, x):
    numbers = [f"{v:.17g}" for v in x.detach().flatten().tolist()]
    print(f"static const double recorded_{name}[] = {{")
    for i in range(0, len(numbers), 4):
        print("    " + ", ".join(numbers[i:i + 4]) + ",")
    print("};")


x = values(0, B, C, H, W)
parameters = {"weight": values(1, O, C, 3, 3), "bias": values(2, O), "gain": values(3, O),
              "shift": values(4, O), "fc_weight": values(5, CLASSES, O * 4),
              "fc_bias": values(6, CLASSES)}
mean, variance = torch.zeros(O, dtype=torch.float64), torch.ones(O, dtype=torch.float64)
y = torch.nn.functional.conv2d(x, parameters["weight"], parameters["bias"], stride=2, padding=1)
y = torch.nn.functional.batch_norm(y, mean, variance, parameters["gain"], parameters["shift"],
                                   training=True, momentum=0.1, eps=1e-5)
y = torch.nn.functional.max_pool2d(torch.relu(y), 2, stride=1)
logits = y.flatten(1) @ parameters["fc_weight"].T + parameters["fc_bias"]
loss = torch.nn.functional.cross_entropy(logits, torch.tensor([3, 1]))
loss.backward()

print("/* SPDX-License-Identifier: Apache-2.0 */")
print(f"/* Made by tests/oracle/make_images.py with PyTorch {torch.__version__.split('+')[0]}. */")
print("/* clang-format off */")
show("loss", loss)
show("x", x.grad)
for name, parameter in parameters.items():
    show(name, parameter.grad)
show("running_mean", mean)
show("running_variance", variance)
