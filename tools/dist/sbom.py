"""Checks that the lists of contents in drun's archives are CycloneDX, and that SPDX knows their licences: sbom.py ARCHIVE..."""

import json
import sys
import tarfile

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

for path in sys.argv[1:]:
    with tarfile.open(path) as archive:
        name = next(n for n in archive.getnames() if n.endswith("/drun.cdx.json"))
        text = archive.extractfile(name).read().decode()
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong:
        sys.exit(f"{path}: {name} is not CycloneDX 1.6: {wrong}")
    components = json.loads(text)["components"]
    expressions = [licence["expression"] for c in components for licence in c.get("licenses", [])]
    unknown = {e: errors for e in expressions if (errors := get_spdx_licensing().validate(e).errors)}
    if unknown or not expressions:
        sys.exit(f"{path}: licences that SPDX does not have: {unknown}")
    print(f"{path}: {len(components)} components, {len(set(expressions))} licences")
