#!/bin/sh
# Prints the peak memory of a rank, the most of all ranks, in MiB, and the last loss, of bench/sharded.star:
# parameters alone take 4 bytes each, gradients as much, and Adam's moments twice that.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
printf '%-6s %7s %5s %12s %10s %s\n' kind layers ranks parameters peak loss
for layers in ${LAYERS:-8 32}; do
	for ranks in ${RANKS:-1 2 4}; do
		for kind in ddp zero fsdp; do
			name=$kind-$layers-$ranks
			bin/drun run bench/sharded.star -n "$ranks" --threads 1 --home "$home" --name "$name" \
				-p kind=$kind -p layers="$layers" >/dev/null 2>&1
			peak=$(bin/drun show "$name" --home "$home" | awk '/^RANK /{t=1; next} /^$/{t=0} t{m = $3 * ($4 == "GiB" ? 1024 : 1); if (m > p) p = m} END{print p}')
			loss=$(bin/drun metrics "$name" --csv --home "$home" | tail -1 | cut -d, -f4)
			printf '%-6s %7s %5s %9s MiB %6s MiB %s\n' $kind "$layers" "$ranks" $((layers * 4)) "$peak" "$loss"
		done
	done
done
