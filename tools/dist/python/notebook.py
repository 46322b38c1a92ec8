"""Executes the cells of docs/notebooks.md in a Jupyter kernel, in an empty folder with the examples; `make notebooks` runs it.

A text block after a cell is what the cell prints, or its value; with --update it is written anew.
"""

import re
import shutil
import sys
import tempfile

import nbclient
import nbformat

page = open(sys.argv[1]).read()
blocks = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", page, re.M | re.S)
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code, _ in blocks])
with tempfile.TemporaryDirectory() as folder:
    shutil.copytree("examples", folder + "/examples")
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
outputs = ["".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs) for cell in notebook.cells]
outputs = ["".join(line.rstrip() + "\n" for line in out.splitlines()) for out in outputs]
if sys.argv[2:] == ["--update"]:
    for (code, want), got in zip(blocks, outputs):
        old = "```python\n%s```\n\n```text\n%s```\n" % (code, want)
        page = page.replace(old, old.replace("```text\n" + want, "```text\n" + got))
    open(sys.argv[1], "w").write(page)
    sys.exit()
checked = sum(want != "" for _, want in blocks)
for (code, want), got in zip(blocks, outputs):
    if want not in ("", got):
        sys.exit("the cell\n\n%s\ngives\n\n%s\nand not\n\n%s" % (code, got, want))
if checked < 3:
    sys.exit("%s has %d cells whose output is checked" % (sys.argv[1], checked))
print("%d cells, %d outputs" % (len(blocks), checked))
