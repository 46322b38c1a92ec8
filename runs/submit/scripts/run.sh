{{- /* How a script runs drun: beneath a launcher, for a run or a cell of a sweep. drun's exit code is kept once it is final. */ -}}
{{define "keep" -}}
over() { cd {{sh .Folder}} && echo "$@" >$left.part && mv $left.part $left; exit $1; }
left=exit
{{- if .Cells}}
{{- if ne .Target.Kind "local"}}
export DRUN_JOB_CELL=$SLURM_ARRAY_TASK_ID
{{- end}}
left=exit-$DRUN_JOB_CELL
. {{sh (print .Folder "/cells")}}
{{- end}}
cd {{sh .Dir}} || over 2 {{sh (print .Dir " is not there: the nodes must share it")}}
export DRUN_HOME={{sh .RunHome}} DRUN_JOB={{sh (print .Folder "/job.json")}}
{{- end}}
{{define "drun" -}}
{{sh .Program}} {{sh .Arguments}}{{if .Cells}} "$@"{{end}}
code=$?
{{- end}}
