#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The manifests of examples/kubernetes: the run file of each is planned for as many ranks as the
# job has replicas, with the roles that the replicas have, and the objects follow their schemas.
# Without PyYAML it skips. Kubeflow's schemas are not part of this repository: ECHELON_CRDS names a
# folder with kubeflow.org_tfjobs.yaml and kubeflow.org_pytorchjobs.yaml (of training-operator's
# manifests/base/crds), and jsonschema checks by them; kubernetes-validate checks other objects.
#     check_kubernetes.py ECHELON FOLDER
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

CRDS = os.environ.get("ECHELON_CRDS")
JOBS = {"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs"}
CONTAINER = {"TFJob": "tensorflow", "PyTorchJob": "pytorch"}
unchecked = set()


def closed(schema):
    """The schema, in which objects with listed properties have no others, as the server prunes
    unknown fields silently."""
    if isinstance(schema, dict):
        schema = {key: closed(value) for key, value in schema.items()}
        if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and \
                "x-kubernetes-preserve-unknown-fields" not in schema:
            schema.setdefault("additionalProperties", False)
        if schema.pop("x-kubernetes-int-or-string", False):
            schema.pop("anyOf", None)
            schema["type"] = ["integer", "string"]
        return schema
    return [closed(value) for value in schema] if isinstance(schema, list) else schema


def check_schema(made):
    kind = made["kind"]
    if kind not in JOBS:
        try:
            import kubernetes_validate
        except ImportError:
            unchecked.add(f"{kind} (kubernetes-validate is not installed)")
            return
        kubernetes_validate.validate(made, "1.30", strict=True)
        return
    if not CRDS:
        unchecked.add(f"{kind} (ECHELON_CRDS is not set)")
        return
    import jsonschema
    path = pathlib.Path(CRDS) / f"kubeflow.org_{kind.lower()}s.yaml"
    crd = yaml.safe_load(path.read_text())
    version = next(v for v in crd["spec"]["versions"] if v["name"] == "v1")
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(made, schema)


def plan(program, run_file, ranks, folder):
    """Plans the run on these ranks, with tokens that are made here; its keys of parallel."""
    run = yaml.safe_load(run_file)
    for split in ("train", "valid"):
        run["data"][split] = f"text-{split}"
    run["log"]["directory"] = "run"
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    done = subprocess.run([program, "plan", "run.yaml", "--ranks", str(ranks)],
                          cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return run["parallel"]


def check_job(program, job, run_file, folder):
    kind, specs = job["kind"], job["spec"][JOBS[job["kind"]]]
    replicas = {role: spec["replicas"] for role, spec in specs.items()}
    keys = plan(program, run_file, sum(replicas.values()), folder)
    assert keys["comm"] == "ucx"
    assert keys.get("evaluators", 0) == replicas.get("Evaluator", 0), "evaluators"
    if kind == "TFJob" and "servers" in keys:
        assert keys["servers"] == replicas.get("PS", 0), "servers"
    for role, spec in specs.items():
        containers = spec["template"]["spec"]["containers"]
        assert [c["name"] for c in containers] == [CONTAINER[kind]], f"{role}'s container"
        assert containers[0]["command"] == ["echelon", "train", "/config/run.yaml"]


def main():
    program, examples = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    manifests = sorted(examples.glob("*.yaml"))
    assert manifests, f"{examples} has no manifests"
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "text.txt").write_text("the quick brown fox jumps over a lazy dog. " * 3000)
        subprocess.run([program, "data", "text.txt", "text", "--valid", "0.1"], cwd=folder,
                       check=True, capture_output=True)
        for path in manifests:
            objects = {made["kind"]: made for made in yaml.safe_load_all(path.read_text())}
            for made in objects.values():
                check_schema(made)
            jobs = [made for kind, made in objects.items() if kind in JOBS]
            assert len(jobs) == 1, f"{path}: one job is wanted"
            check_job(program, jobs[0], objects["ConfigMap"]["data"]["run.yaml"], folder)
            print(f"{path.name}: {', '.join(objects)}")
    for kind in sorted(unchecked):
        print(f"not compared with its schema: {kind}")


main()
