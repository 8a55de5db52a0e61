#!/usr/bin/env python3
"""Writes the bill of materials of the program: every package that is built into it, as CycloneDX 1.5 JSON.

usage: scripts/lib/sbom.py --out FILE

From `cargo metadata` and the lock file, offline: name, version, licence, checksum and dependencies of each package that the
program settee needs on this platform, with the features that it is built with. Packages for tests alone are left out.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]


def metadata():
    host = re.search(r"^host: (.+)$", subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout, re.M)[1]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    return json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)


def checksums():
    """By name and version."""
    found, text = {}, (ROOT / "Cargo.lock").read_text()
    for block in text.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(\w+) = "(.*)"$', block, re.M))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def needed(data):
    """The ids of what the program needs, without what only tests need; and what each of them needs."""
    nodes = {entry["id"]: entry for entry in data["resolve"]["nodes"]}
    root = next(package["id"] for package in data["packages"] if package["name"] == "settee")
    edges, todo = {}, [root]
    while todo:
        at = todo.pop()
        if at in edges:
            continue
        kinds = [(dep["pkg"], {kind["kind"] for kind in dep["dep_kinds"]}) for dep in nodes[at]["deps"]]
        edges[at] = sorted(package for package, kind in kinds if kind != {"dev"})
        todo += edges[at]
    return root, edges


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    data, sums = metadata(), checksums()
    root, edges = needed(data)
    packages = {package["id"]: package for package in data["packages"]}

    def reference(package_id):
        package = packages[package_id]
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package_id):
        package = packages[package_id]
        out = {"type": "library", "bom-ref": reference(package_id), "name": package["name"], "version": package["version"],
               "purl": reference(package_id), "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ")}]}
        if package.get("description"):
            out["description"] = " ".join(package["description"].split())
        checksum = sums.get((package["name"], package["version"]))
        if checksum:
            out["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return out

    others = sorted((package for package in edges if package != root), key=reference)
    top = component(root) | {"type": "application"}
    # The same content has the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(map(reference, [root, *others])))
    bill = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "serialNumber": f"urn:uuid:{number}",
        "metadata": {"component": top, "tools": [{"name": "scripts/lib/sbom.py"}]},
        "components": [component(package) for package in others],
        "dependencies": [{"ref": reference(package), "dependsOn": sorted({reference(to) for to in edges[package]})}
                         for package in sorted(edges, key=reference)],
    }
    pathlib.Path(options.out).write_text(json.dumps(bill, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(others)} packages in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
