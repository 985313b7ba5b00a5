# SPDX-License-Identifier: Apache-2.0
"""VGG and ResNet beside torchvision.

    check_images.py ECHELON FIXTURES [CASE ...]
    check_images.py ECHELON FIXTURES --write      writes the lists of FIXTURES/torchvision anew

FIXTURES/torchvision has the names and shapes of torchvision's tensors, with which
tests/model/test_images.c compares the families' parameters. Then

    `echelon eval` of weights that torchvision drew has torchvision's loss and accuracies, in fp32,
    weights that a run trained from there load into torchvision's model (strict), which has the
        loss that the run reports,
    five training steps of small models in fp64 have PyTorch's losses, norms, weights and running
        statistics; among them pre-activation ResNets and RevNets, modules of this file.

Exits 77 where a package is missing.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors.torch
    import torch
    import torchvision
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

from torch import nn

CLASSES, IMAGES_OF_CLASS = 7, 2  # so "of five" says something
SAMPLES = CLASSES * IMAGES_OF_CLASS
LOSS_TOLERANCE = 1e-4  # fp32
TRAINING_TOLERANCE = 1e-9  # fp64
STEPS, RATE, MOMENTUM, DECAY, CLIP = 5, 0.05, 0.9, 0.01, 0.5
COUNT = "num_batches_tracked"  # of a norm's steps; PyTorch uses it only without a momentum
LISTS = ("vgg11", "vgg16", "resnet18", "resnet50")

# torchvision's name: the image's height and width, and more keys of the model.
DRAWN = {"vgg11": (224, 224, {"weight_layers": 11}),
         "vgg16": (224, 224, {"weight_layers": 16}),
         "resnet18": (72, 104, {"weight_layers": 18, "small_stem": False}),
         "resnet50": (75, 65, {"weight_layers": 50, "small_stem": False})}

SMOOTHING = {"resnet 18 smoothed": 0.1}  # of labels, in training

# Model keys of small models, whose torch module small_model() builds.
TRAINED = {
    "vgg 11": {"architecture": "vgg", "weight_layers": 11, "base_channels": 4, "hidden_size": 24,
               "image_height": 32, "image_width": 32},
    "vgg 13 wide": {"architecture": "vgg", "weight_layers": 13, "base_channels": 2,
                    "hidden_size": 12, "image_height": 35, "image_width": 66},
    "resnet 18": {"architecture": "resnet", "weight_layers": 18, "base_channels": 4,
                  "small_stem": True, "image_height": 32, "image_width": 32},
    "resnet 18 smoothed": {"architecture": "resnet", "weight_layers": 18, "base_channels": 4,
                           "small_stem": True, "image_height": 19, "image_width": 21},
    "resnet 34 stem": {"architecture": "resnet", "weight_layers": 34, "base_channels": 2,
                       "small_stem": False, "image_height": 65, "image_width": 72},
    "resnet 50": {"architecture": "resnet", "weight_layers": 50, "base_channels": 2,
                  "small_stem": True, "image_height": 17, "image_width": 20},
    "resnet 20": {"architecture": "resnet", "weight_layers": 20, "base_channels": 4,
                  "small_stem": True, "image_height": 13, "image_width": 12},
    "preactivated 34": {"architecture": "resnet", "weight_layers": 34, "base_channels": 2,
                        "pre_activation": True, "small_stem": False, "image_height": 65,
                        "image_width": 72},
    "preactivated 26": {"architecture": "resnet", "weight_layers": 26, "base_channels": 3,
                        "pre_activation": True, "small_stem": True, "image_height": 12,
                        "image_width": 13},
    "preactivated 29": {"architecture": "resnet", "weight_layers": 29, "base_channels": 2,
                        "pre_activation": True, "small_stem": True, "image_height": 17,
                        "image_width": 14},
    "revnet 14": {"architecture": "revnet", "weight_layers": 14, "base_channels": 8,
                  "image_height": 13, "image_width": 12},
    "revnet 20": {"architecture": "revnet", "weight_layers": 20, "base_channels": 4,
                  "image_height": 12, "image_width": 14},
    "mlp": {"architecture": "mlp", "hidden_size": 20, "num_hidden_layers": 3, "image_height": 9,
            "image_width": 11},
}


def run(*words):
    """What the program printed."""
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
    return done.stdout


def fp64(numbers):
    return torch.tensor(list(numbers), dtype=torch.float64)


def apart(ours, theirs):
    """The largest difference, relative where numbers are above 1."""
    return ((ours - theirs).abs() / theirs.abs().clamp(min=1)).max().item()


# ---- images ----

def draw_images(folder, height, width):
    """PNG files, a folder for each class, packed by the program. Returns the packed file."""
    generator = torch.Generator().manual_seed(1)
    for label in range(CLASSES):
        (folder / f"png/{label}").mkdir(parents=True)
        for i in range(IMAGES_OF_CLASS):
            image = torch.randint(256, (3, height, width), generator=generator)
            image = (image // 2 + 18 * label).to(torch.uint8)
            torchvision.io.write_png(image, str(folder / f"png/{label}/{i}.png"))
    run(sys.argv[1], "data", folder / "png", folder / "all", "--images")
    return folder / "all.images"


def read_images(path):
    """Normalized pixels (N,C,H,W) in fp32, and labels (N), by docs/formats.md."""
    data = path.read_bytes()
    first = int.from_bytes(data[12:16], "little")
    height, width, channels, classes = numpy.frombuffer(data, "<u4", 4, 16)
    assert classes == CLASSES
    mean, deviation = (numpy.frombuffer(data, "<f4", channels, at) for at in (48, 64))
    records = numpy.frombuffer(data, numpy.uint8, offset=first)
    records = records.reshape(-1, 4 + height * width * channels)
    assert len(records) == SAMPLES
    labels = records[:, :4].copy().view("<u4")[:, 0].astype(numpy.int64)
    pixels = records[:, 4:].reshape(-1, height, width, channels).astype(numpy.float32)
    pixels = (pixels - mean) / deviation
    return torch.tensor(pixels).permute(0, 3, 1, 2), torch.tensor(labels)


# ---- folders and evaluation ----

def config_json(keys):
    """What Echelon writes beside weights of this family (docs/formats.md)."""
    names = {"image_channels": "num_channels"}
    values = {names.get(key, key): value for key, value in keys.items() if key != "architecture"}
    return {"model_type": f"echelon-{keys['architecture']}"} | values


def write_folder(folder, keys, state):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_json(keys)))
    tensors = {name: tensor.contiguous() for name, tensor in state.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def echelon_eval(folder, images):
    """Loss, accuracy, and accuracy of five."""
    words = run(sys.argv[1], "eval", folder, "--data", images, "--batch", 4).split()
    return [float(words[words.index(name) + 1]) for name in ("loss", "accuracy", "five")]


@torch.no_grad()
def torch_eval(model, pixels, labels):
    logits = model.eval()(pixels)
    hits = [(logits.topk(k).indices == labels[:, None]).any(1).double().mean().item()
            for k in (1, 5)]
    return [nn.functional.cross_entropy(logits, labels).item(), *hits]


def check_same(what, ours, theirs):
    assert abs(ours[0] - theirs[0]) <= LOSS_TOLERANCE * max(1, theirs[0]), (
        f"{what}: loss {ours[0]}, of torchvision {theirs[0]}")
    assert all(abs(a - b) < 6e-5 for a, b in zip(ours[1:], theirs[1:])), (
        f"{what}: accuracies {ours[1:]}, of torchvision {theirs[1:]}")
    return abs(ours[0] - theirs[0])


# ---- torchvision's weights there and back ----

@torch.no_grad()
def spread(model, pixels):
    """Gives each number of the model a part: gains, biases and statistics of their own, and logits
    as large as classes need."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.2)
    model.train()(pixels)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.add_(0.2 * torch.randn_like(module.running_mean))
            module.running_var.mul_(0.5 + torch.rand_like(module.running_var))
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    last.bias.normal_()
    last.weight.mul_(2 / (model.eval()(pixels) - last.bias).std())


def run_file(folder, keys, images, **more):
    sections = {
        "model": keys | {"num_classes": CLASSES},
        "data": {"train": str(images), "valid": str(images)},
        "training": {"global_batch_size": SAMPLES, "micro_batch_size": SAMPLES, "steps": STEPS,
                     "validate_every": STEPS, "check_every": 0},
        "optimizer": {"name": "sgd", "momentum": MOMENTUM, "learning_rate": RATE,
                      "schedule": "constant", "weight_decay": DECAY, "clip_norm": CLIP},
        "checkpoint": {"directory": str(folder / "saved")},
        "log": {"directory": str(folder / "run"), "every": 1}}
    for section, values in more.items():
        sections.setdefault(section, {}).update(values)
    (folder / "run.yaml").write_text(json.dumps(sections))
    return folder / "run.yaml"


def read_metrics(folder):
    return [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]


def validated(folder):
    """What the run's validation found: loss, without smoothing, and accuracies."""
    found = next(line for line in read_metrics(folder) if "valid_loss" in line)
    return [found[f"valid_{name}"] for name in ("loss", "accuracy", "accuracy_of_5")]


def saved(folder):
    """The newest checkpoint's folder of weights."""
    return sorted((folder / "saved").glob("step-*"))[-1] / "model"


def check_counts(state, model, steps):
    """The state has all tensors of the model, and each norm has counted the steps."""
    assert state.keys() == model.state_dict().keys(), state.keys() ^ model.state_dict().keys()
    counts = [value for key, value in state.items() if key.endswith(COUNT)]
    assert all(count.dtype == torch.int64 and count.shape == () for count in counts)
    assert all(count.item() == steps for count in counts), counts


def check_drawn(name, folder):
    height, width, more = DRAWN[name]
    keys = {"architecture": name.rstrip("0123456789"), "image_height": height,
            "image_width": width, "image_channels": 3, "num_classes": CLASSES} | more
    images = draw_images(folder, height, width)
    pixels, labels = read_images(images)
    torch.manual_seed(2)
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    spread(model, pixels)
    write_folder(folder / "drawn", keys, model.state_dict())
    there = check_same("drawn", echelon_eval(folder / "drawn", images),
                       torch_eval(model, pixels, labels))

    # One step, whose dropout is another program's, from the folder's config.json and weights.
    step = run_file(folder, {}, images, model={"init_from": str(folder / "drawn")},
                    training={"steps": 1, "validate_every": 1},
                    optimizer={"learning_rate": 0.01})
    run(sys.argv[1], "train", step)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = safetensors.torch.load_file(saved(folder) / "model.safetensors")
    check_counts(state, model, 1)
    model.load_state_dict(state)
    run(sys.argv[1], "convert", saved(folder), folder / "converted")
    check_counts(safetensors.torch.load_file(folder / "converted/model.safetensors"), model, 1)
    still = [key for key, value in model.state_dict().items()
             if not key.endswith(COUNT) and torch.equal(value, before[key])]
    assert not still, f"the step did not change {still}"
    expected = torch_eval(model, pixels, labels)
    back = max(check_same("trained, validation", validated(folder), expected),
               check_same("trained, eval", echelon_eval(saved(folder), images), expected))
    return f"losses within {there:.1e} there and {back:.1e} back"


# ---- training ----

def groups_of(depth):
    """Numbers of units of groups, and whether they are bottlenecks."""
    known = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
    if depth in known:
        return known[depth], depth >= 50
    bottleneck = (depth - 2) % 6 != 0  # of the depths here
    return 3 * [(depth - 2) // (9 if bottleneck else 6)], bottleneck


class SmallResNet(nn.Module):
    """torchvision's units, on any number of channels, with either stem."""

    def __init__(self, keys):
        super().__init__()
        width, small = keys["base_channels"], keys["small_stem"]
        groups, bottleneck = groups_of(keys["weight_layers"])
        unit = (torchvision.models.resnet.Bottleneck if bottleneck
                else torchvision.models.resnet.BasicBlock)
        self.conv1 = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, 1 if small else 3,
                               bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        channels = width
        self.groups = len(groups)
        for group, units in enumerate(groups):
            layer, stride = [], 1 if group == 0 else 2
            for _ in range(units):
                out = (width << group) * unit.expansion
                shortcut = None
                if stride > 1 or channels != out:
                    shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                             nn.BatchNorm2d(out))
                layer.append(unit(channels, width << group, stride, shortcut))
                channels, stride = out, 1
            setattr(self, f"layer{group + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = self.pool(self.bn1(self.conv1(x)).relu())
        for group in range(self.groups):
            x = getattr(self, f"layer{group + 1}")(x)
        return self.fc(x.mean((2, 3)))


class Preactivated(nn.Module):
    """A residual function of He et al. 2016 (arXiv:1603.05027), and its shortcut."""

    def __init__(self, inputs, channels, stride, bottleneck):
        super().__init__()
        outputs = 4 * channels if bottleneck else channels
        widths = [inputs, channels, outputs]
        if bottleneck:
            widths.insert(1, channels)
        kinds = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        self.convs = len(kinds)
        for i, (size, step) in enumerate(kinds):
            setattr(self, f"bn{i + 1}", nn.BatchNorm2d(widths[i]))
            setattr(self, f"conv{i + 1}", nn.Conv2d(widths[i], widths[i + 1], size, step,
                                                    size // 2, bias=False))
        self.outputs = outputs
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def activated(self, x):
        return self.bn1(x).relu()

    def residual(self, x):
        """Of x that is activated."""
        x = self.conv1(x)
        for i in range(2, self.convs + 1):
            x = getattr(self, f"conv{i}")(getattr(self, f"bn{i}")(x).relu())
        return x

    def shortcut(self, x):
        return x if self.downsample is None else self.downsample(x)


class PreactivatedResNet(nn.Module):
    def __init__(self, keys):
        super().__init__()
        channels, small = keys["base_channels"], keys["small_stem"]
        groups, bottleneck = groups_of(keys["weight_layers"])
        self.conv1 = nn.Conv2d(3, channels, 3 if small else 7, 1 if small else 2,
                               1 if small else 3, bias=False)
        self.pool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        self.groups = len(groups)
        for group, units in enumerate(groups):
            layer = nn.ModuleList()
            for i in range(units):
                layer.append(Preactivated(channels, keys["base_channels"] << group,
                                          2 if group > 0 and i == 0 else 1, bottleneck))
                channels = layer[-1].outputs
            setattr(self, f"layer{group + 1}", layer)
        self.bn = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = self.pool(self.conv1(x))
        layers = [getattr(self, f"layer{group + 1}") for group in range(self.groups)]
        for i, unit in enumerate(unit for layer in layers for unit in layer):
            activated = unit.activated(x)
            both = i == 0 or unit.downsample is not None
            x = unit.shortcut(activated if both else x) + unit.residual(activated)
        return self.fc(self.bn(x).relu().mean((2, 3)))


class RevNetUnit(nn.Module):
    """y1 = x1 + F(x2), y2 = x2 + G(y1), with shortcuts to another shape."""

    def __init__(self, inputs, channels, stride, bottleneck):
        super().__init__()
        self.f = Preactivated(inputs, channels, stride, bottleneck)
        self.outputs = self.f.outputs
        self.g = Preactivated(self.outputs, channels, 1, bottleneck)
        if self.f.downsample is not None:
            self.g.downsample = nn.Conv2d(inputs, self.outputs, 1, stride, bias=False)

    def forward(self, x1, x2):
        y1 = self.f.shortcut(x1) + self.f.residual(self.f.activated(x2))
        return y1, self.g.shortcut(x2) + self.g.residual(self.g.activated(y1))


class RevNet(nn.Module):
    """Of Gomez et al. 2017, with convolutions where a unit changes the shape."""

    def __init__(self, keys):
        super().__init__()
        channels = first = keys["base_channels"] // 2
        depth = keys["weight_layers"]
        bottleneck = (depth - 2) % 12 != 0
        self.stem = nn.ModuleDict({
            stream: nn.ModuleDict({"conv": nn.Conv2d(3, first, 3, 1, 1, bias=False),
                                   "bn": nn.BatchNorm2d(first)}) for stream in "12"})
        for group in range(3):
            layer = nn.ModuleList()
            for i in range((depth - 2) // (18 if bottleneck else 12)):
                layer.append(RevNetUnit(channels, first << group, 2 if group > 0 and i == 0 else 1,
                                        bottleneck))
                channels = layer[-1].outputs
            setattr(self, f"layer{group + 1}", layer)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.fc = nn.Linear(2 * channels, CLASSES)

    def forward(self, x):
        x = [stem["bn"](stem["conv"](x)).relu() for stem in self.stem.values()]
        for unit in [*self.layer1, *self.layer2, *self.layer3]:
            x = unit(*x)
        x = [norm(stream).relu().mean((2, 3)) for norm, stream in zip((self.bn1, self.bn2), x)]
        return self.fc(torch.cat(x, 1))


class SmallVGG(nn.Module):
    """torchvision's features, on any number of channels, and a classifier of what is left."""

    def __init__(self, keys):
        super().__init__()
        kind = {11: "A", 13: "B"}[keys["weight_layers"]]
        layers = [x if x == "M" else x * keys["base_channels"] // 64
                  for x in torchvision.models.vgg.cfgs[kind]]
        self.features = torchvision.models.vgg.make_layers(layers)
        left = layers[-2] * (keys["image_height"] // 32) * (keys["image_width"] // 32)
        wide = keys["hidden_size"]
        self.classifier = nn.Sequential(
            nn.Linear(left, wide), nn.ReLU(), nn.Identity(), nn.Linear(wide, wide), nn.ReLU(),
            nn.Identity(), nn.Linear(wide, CLASSES))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Mlp(nn.Module):
    """Pixels in torchvision's order: by channel and row."""

    def __init__(self, keys):
        super().__init__()
        widths = [3 * keys["image_height"] * keys["image_width"]]
        widths += keys["num_hidden_layers"] * [keys["hidden_size"]]
        self.layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def small_model(keys):
    kind = {"vgg": SmallVGG, "resnet": SmallResNet, "revnet": RevNet, "mlp": Mlp}[
        keys["architecture"]]
    if keys.get("pre_activation"):
        kind = PreactivatedResNet
    model = kind(keys)
    for parameter in model.parameters():  # biases, too, of which some would begin with 0
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def train(model, pixels, labels, smoothing):
    """Losses and norms of all steps. The batch is the data set, so its order does not matter."""
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM)
    losses, norms = [], []
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels), labels, label_smoothing=smoothing)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms


def check_trained(name, folder):
    keys = TRAINED[name] | {"image_channels": 3}
    images = draw_images(folder, keys["image_height"], keys["image_width"])
    pixels, labels = read_images(images)
    torch.manual_seed(3)
    model = small_model(keys)
    write_folder(folder / "begin", keys | {"num_classes": CLASSES}, model.state_dict())
    ours = dict(keys)
    if keys["architecture"] == "vgg":
        ours["classifier_dropout"] = 0
    run(sys.argv[1], "train",
        run_file(folder, ours, images, model={"init_from": str(folder / "begin")},
                 precision={"compute": "fp64"},
                 training={"label_smoothing": SMOOTHING.get(name, 0)}))
    model.double()
    losses, norms = train(model, pixels.double(), labels, SMOOTHING.get(name, 0))
    lines = [line for line in read_metrics(folder) if "loss" in line]
    far = {"losses": apart(fp64(line["loss"] for line in lines), fp64(losses)),
           "norms": apart(fp64(line["grad_norm"] for line in lines), fp64(norms))}
    state = safetensors.torch.load_file(saved(folder) / "model.safetensors")
    check_counts(state, model, STEPS)
    state = {key: value for key, value in state.items() if not key.endswith(COUNT)}
    theirs = model.state_dict()
    assert all(value.dtype == torch.float64 for value in state.values())
    assert len(lines) == STEPS
    far["weights"] = max(apart(state[key], theirs[key]) for key in state if "running" not in key)
    far["statistics"] = max([apart(state[key], theirs[key]) for key in state if "running" in key],
                            default=0.0)
    assert losses[-1] < losses[0], losses
    expected = torch_eval(model, pixels.double(), labels)
    check_same("after training", echelon_eval(saved(folder), images), expected)
    check_same("validation", validated(folder), expected)
    said = ", ".join(f"{what} within {value:.1e}" for what, value in far.items())
    assert max(far.values()) <= TRAINING_TOLERANCE, said
    return said


# ---- lists ----

def list_tensors(name):
    state = getattr(torchvision.models, name)().state_dict()
    return "".join(f"{' '.join(map(str, [key, *value.shape]))}\n"
                   for key, value in state.items() if not key.endswith(COUNT))


def check_lists(folder):
    wrong = [name for name in LISTS if (folder / f"{name}.txt").read_text() != list_tensors(name)]
    assert not wrong, f"lists of {wrong} are not torchvision's; write them anew with --write"


def main():
    lists = pathlib.Path(sys.argv[2]) / "torchvision"
    if sys.argv[3:] == ["--write"]:
        lists.mkdir(exist_ok=True)
        for name in LISTS:
            (lists / f"{name}.txt").write_text(list_tensors(name))
        return
    torch.set_num_threads(2)
    check_lists(lists)
    failed = []
    for name in sys.argv[3:] or [*DRAWN, *TRAINED]:
        try:
            with tempfile.TemporaryDirectory() as scratch:
                check = check_drawn if name in DRAWN else check_trained
                print(f"{name}: {check(name, pathlib.Path(scratch))}", flush=True)
        except AssertionError as error:
            failed.append(name)
            print(f"{name}: FAILED: {error}", flush=True)
    if failed:
        sys.exit(f"{len(failed)} failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
