#!/bin/sh
# Lets gremlins, a mutation tester, change Go code that needs no C, for so many seconds: in files that differ from a commit
# first, then in packages drawn by chance. Prints each change that no test noticed, and how many were noticed.
#   gremlins.sh SECONDS [COMMIT]
set -eu
seconds=$1 since=${2:-HEAD~20}
end=$(($(date +%s) + seconds))
packages="collective collective/reduction collective/messages engine/cluster engine/rendezvous history/query history/records
internal/elapsed internal/exit internal/queue internal/scratch internal/secret internal/spelling internal/terminal
plugins/internal/mesh plugins/internal/wire starlib/codec starlib/data/picture
starlib/data/table starlib/data/table/columns starlib/data/tokenizer starlib/lang tools/check tools/format"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
git archive HEAD | tar -x -C "$dir" # gremlins copies the whole module for each worker: without what was built
cp -r .git "$dir/.git"
GOBIN="$dir/bin" go install github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
: >"$dir/found"
unleash() { # PACKAGE [OPTION]...
	package=$1 left=$((end - $(date +%s)))
	shift
	[ "$left" -gt 0 ] || return 0
	(cd "$dir" && timeout "$left" bin/gremlins unleash --workers 1 --timeout-coefficient 20 -S lkt "$@" "./$package") >"$dir/out" 2>&1 || true
	grep -E '^ *(LIVED|KILLED|TIMED OUT) ' "$dir/out" >>"$dir/found" || true
	grep -E '^ *LIVED ' "$dir/out" | sed "s|^ *|$package: |" || true
}
for p in $packages; do
	git diff --quiet "$since" -- "$p" || unleash "$p" --diff "$since"
done
for p in $(shuf -e $packages); do unleash "$p"; done
lived=$(grep -c '^ *LIVED' "$dir/found" || true)
all=$(wc -l <"$dir/found")
echo "gremlins: $((all - lived)) of $all changes noticed"
