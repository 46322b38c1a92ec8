package opencl

import (
	"drun/kernel"
	"drun/kernel/dtype"
)

var cells = [...]string{kernel.LSTM: "lstm", kernel.GRU: "gru", kernel.RNNTanh: "rnn", kernel.RNNRelu: "rnn"}

// CellStep is the Run of [kernel.CellStep]; its memory is at places in the order of its fields from Gates on, and at lengths.
func (d *Device) CellStep(s *kernel.CellStep, dt dtype.Type, cell kernel.Cell, backward bool, places [14]Place, lengths Place) {
	run := " -DRUN=" + cells[cell]
	if backward {
		run += "_grad"
	}
	k := d.typed("recurrent.cl", "cell_step", dt, run+"_rows_"+suffixes[dt])
	c := d.begin()
	for _, p := range places {
		c.place(p)
	}
	c.place(lengths).longs(s.N, s.Width, s.T, s.OutStep).flag(cell == kernel.RNNRelu)
	d.line(k, s.N*s.Width)
}
