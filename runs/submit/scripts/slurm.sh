#!/bin/sh
#SBATCH --job-name={{.Name}}
#SBATCH --nodes={{.Nodes}} --ntasks-per-node=1 --cpus-per-task={{.CPUs}}
#SBATCH --requeue --open-mode=append --signal=TERM@{{.Seconds}}
{{- if .Cells}}
#SBATCH --array=1-{{len .Cells}}{{if .AtOnce}}%{{.AtOnce}}{{end}}
{{- end}}
#SBATCH --output="{{.Folder}}/output{{if .Cells}}-%a{{end}}"
{{- range .Options}}
#SBATCH {{.}}
{{- end}}
umask 077
{{- with .Target.Get "setup"}}
{{.}}
{{- end}}
{{template "keep" .}}
{{- if gt .Nodes 1}}
lacks=$(srun sh -c 'for f; do [ -e "$f" ] || echo "$SLURMD_NODENAME: $f is not there: the nodes must share it"; done' sh {{sh .Folder .Dir .Program .Data}} | paste -s -d ';' -)
[ -z "$lacks" ] || over 2 "$lacks" # else a node would wait for one that cannot begin
{{- end}}
srun --kill-on-bad-exit=0 --cpus-per-task={{.CPUs}} {{template "drun" .}}
if [ $code = 130 ] || [ $code = 3 ]; then # it was to end before its time, or lost a node: it goes on from its checkpoint
    same=$({{sh .Program}} sql "{{.Stuck}}" | tail -n 1)
    [ "$same" != 1 ] || over $code "it has begun ten times from the same checkpoint, or from none: more --time, or a recipe that saves when run.should_stop() says so"
    why=$(scontrol requeue "$SLURM_JOB_ID" 2>&1) && exit $code
    case $why in *"pending execution"*) exit $code ;; esac # Slurm has done so itself, since a node failed
    echo "$why" >&2
fi
over $code
