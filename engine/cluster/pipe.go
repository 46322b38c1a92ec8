package cluster

import (
	"io"

	"drun/internal/queue"
)

// pipe is one end of a link within the process.
type pipe[In, Out any] struct {
	in    *queue.Queue[[]*In]
	out   *queue.Queue[[]*Out]
	taken []*In // received from in, not yet returned
}

// Pipe links the coordinator to the node on its own machine.
func Pipe() (coordinator Link[ToCoordinator, ToNode], node Link[ToNode, ToCoordinator]) {
	up, down := queue.New[[]*ToCoordinator](queue.Limits{Full: queued}), queue.New[[]*ToNode](queue.Limits{Full: queued})
	return &pipe[ToCoordinator, ToNode]{in: up, out: down}, &pipe[ToNode, ToCoordinator]{in: down, out: up}
}

func (p *pipe[In, Out]) Send(msg *Out) { p.out.Add(1, func(b *[]*Out) { *b = append(*b, msg) }) }
func (p *pipe[In, Out]) Wait()         { p.out.Wait() }

func (p *pipe[In, Out]) Receive() (*In, error) {
	for len(p.taken) == 0 {
		<-p.in.Ready()
		var closed bool
		if p.taken, _, closed = p.in.Take(); closed {
			p.in.Flush() // for the next call
			if len(p.taken) == 0 {
				return nil, io.EOF
			}
		}
	}
	msg := p.taken[0]
	p.taken = p.taken[1:]
	return msg, nil
}

func (p *pipe[In, Out]) Close() {
	p.out.Close()
	p.in.Close()
}

func (p *pipe[In, Out]) Traffic() int64 { return 0 }
