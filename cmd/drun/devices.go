package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"drun/internal/try"
	"drun/kernel/opencl"
)

func newDevices() *cobra.Command {
	return &cobra.Command{
		Use:   "devices",
		Short: "List the OpenCL devices, and check that they compute the processor's bits",
		Long: "Lists the devices of all OpenCL platforms, with their memory. Each computes the golden cases: operations and kernels\n" +
			"whose results must be the processor's to the last bit. drun run --device refuses a device that fails them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, try.To(examineDevices()), listDevices)
		},
	}
}

// deviceInfo is a device as `drun devices --json` shows it.
type deviceInfo struct {
	Device     string  `json:"device"`
	Platform   string  `json:"platform"`
	Name       string  `json:"name"`
	Driver     string  `json:"-"`
	GPU        bool    `json:"-"`
	Memory     int     `json:"memory"`
	Float64    bool    `json:"float64"`
	Passed     bool    `json:"passed"`
	Difference *string `json:"first_difference"` // null: there is none
}

// checkAtMost limits the golden cases of a device, whose compiler may hang. The first time, it may be busy for long.
const checkAtMost = 5 * time.Minute

func examineDevices() (_ []deviceInfo, err error) {
	defer try.Caught(&err)
	list := []deviceInfo{}
	for _, f := range try.To(opencl.List()) {
		info := deviceInfo{Device: f.Device, Platform: f.Platform, Name: f.Name, Driver: f.Driver, GPU: f.GPU, Memory: f.Memory, Float64: f.Float64}
		if difference := checkDevice(f); difference != "" {
			info.Difference = &difference
		}
		info.Passed = info.Difference == nil
		list = append(list, info)
	}
	return list, nil
}

// checkDevice returns why a device cannot be used, "" if it can.
func checkDevice(f opencl.Found) string {
	checked := make(chan string, 1) // a check that hangs goes on
	go func() {
		d, err := opencl.Open(f)
		difference := ""
		if err == nil {
			difference, err = d.Check()
		}
		if err != nil {
			difference = err.Error()
		}
		checked <- difference
	}()
	select {
	case difference := <-checked:
		return difference
	case <-time.After(checkAtMost):
		return fmt.Sprintf("the golden cases took more than %v", checkAtMost)
	}
}

func listDevices(out io.Writer, list []deviceInfo) error {
	if len(list) == 0 {
		fmt.Fprintln(out, "OpenCL has no device here")
	}
	return printList(out, list, []column[deviceInfo]{
		{[]string{"DEVICE", "NAME", "PLATFORM", "DRIVER", "MEMORY", "BITS"}, func(d deviceInfo) any {
			return []string{d.Device, d.Name, d.Platform, d.Driver, humanize.IBytes(uint64(d.Memory)), d.bits("the processor's")}
		}},
	})
}

// bits says how the device differs from the processor, or else what is given.
func (d deviceInfo) bits(equal string) string {
	if d.Difference != nil {
		return *d.Difference
	}
	return equal
}
