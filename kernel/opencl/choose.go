package opencl

import (
	"fmt"
)

// Choose opens the device that --device names, "opencl" or "opencl:N" or "auto", for the rank with this number on its
// machine; nil: the processor. Without a number the ranks take the GPUs in turn; where there is none, "auto" is the processor, and
// "opencl" any device.
func Choose(name string, localRank int) (*Device, error) {
	if name == "" || name == "cpu" {
		return nil, nil
	}
	found, err := List()
	if name == "auto" && err != nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if name == "auto" {
			return nil, nil
		}
		return nil, fmt.Errorf("OpenCL has no device here: %s", install)
	}
	var gpus []Found
	for _, f := range found {
		if f.Device == name {
			return Open(f)
		}
		if f.GPU {
			gpus = append(gpus, f)
		}
	}
	switch {
	case len(gpus) > 0 && (name == "auto" || name == "opencl"):
		found = gpus
	case name == "auto":
		return nil, nil
	case name != "opencl":
		return nil, fmt.Errorf("there is no device %s: drun devices lists those that there are", name)
	}
	return Open(found[localRank%len(found)])
}

// CheckName returns an error unless --device may have this value.
func CheckName(name string) error {
	var n uint
	switch name {
	case "", "cpu", "auto", "opencl":
		return nil
	}
	if got, _ := fmt.Sscanf(name, "opencl:%d", &n); got == 1 && name == fmt.Sprintf("opencl:%d", n) {
		return nil
	}
	return fmt.Errorf("the device is cpu, opencl, opencl:N or auto, not %q", name)
}
