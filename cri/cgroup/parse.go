package cgroup

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// number reads an unsigned decimal number; "max" and -1 are Unlimited.
func number(text []byte) (uint64, bool) {
	text = bytes.TrimSpace(text)
	switch string(text) {
	case "max", "-1":
		return Unlimited, true
	case "":
		return 0, false
	}
	var n uint64
	for _, c := range text {
		digit := uint64(c - '0')
		if c < '0' || c > '9' || n > (math.MaxUint64-digit)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	return n, true
}

// eachLine hands every line to visit.
func eachLine(data []byte, visit func(line []byte)) {
	for len(data) > 0 {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		visit(line)
	}
}

// eachKey reads lines such as "anon 4096"; what isn't one is skipped.
func eachKey(data []byte, visit func(key []byte, value uint64)) {
	eachLine(data, func(line []byte) {
		key, rest, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			return
		}
		if value, ok := number(rest); ok {
			visit(key, value)
		}
	})
}

// fill takes the values of the keys that are wanted.
func fill(data []byte, into map[string]*uint64) {
	eachKey(data, func(key []byte, value uint64) {
		if wanted := into[string(key)]; wanted != nil {
			*wanted = value
		}
	})
}

// parsePressure reads a file such as cpu.pressure: "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", total in
// microseconds.
func parsePressure(data []byte) *Pressure {
	var p Pressure
	found := false
	eachLine(data, func(line []byte) {
		fields := strings.Fields(string(line))
		if len(fields) != 5 {
			return
		}
		stall := &p.Some
		switch fields[0] {
		case "some":
		case "full":
			stall = &p.Full
		default:
			return
		}
		found = parseStall(fields[1:], stall) || found
	})
	if !found {
		return nil
	}
	return &p
}

func parseStall(fields []string, into *Stall) bool {
	var s Stall
	for _, field := range fields {
		key, text, _ := strings.Cut(field, "=")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(value) || value < 0 {
			return false
		}
		switch key {
		case "avg10":
			s.Avg10 = value
		case "avg60":
			s.Avg60 = value
		case "avg300":
			s.Avg300 = value
		case "total":
			micros, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return false
			}
			s.Total = micros * 1000
		}
	}
	*into = s
	return true
}

// device finds the entry of "8:0" in list, or adds one.
func device(list []DeviceIO, text string) ([]DeviceIO, *DeviceIO) {
	a, b, ok := strings.Cut(text, ":")
	major, err := strconv.ParseUint(a, 10, 32)
	minor, err2 := strconv.ParseUint(b, 10, 32)
	if !ok || err != nil || err2 != nil {
		return list, nil
	}
	for i := range list {
		if list[i].Major == major && list[i].Minor == minor {
			return list, &list[i]
		}
	}
	list = append(list, DeviceIO{Major: major, Minor: minor})
	return list, &list[len(list)-1]
}

// parseBlkio reads version 1's lines such as "8:0 Read 4096" into bytes or, with ops, into the numbers of requests.
func parseBlkio(data []byte, list []DeviceIO, ops bool) []DeviceIO {
	eachLine(data, func(line []byte) {
		fields := strings.Fields(string(line))
		if len(fields) != 3 {
			return
		}
		value, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			return
		}
		var d *DeviceIO
		if list, d = device(list, fields[0]); d == nil {
			return
		}
		switch {
		case fields[1] == "Read" && ops:
			d.Reads = value
		case fields[1] == "Read":
			d.ReadBytes = value
		case fields[1] == "Write" && ops:
			d.Writes = value
		case fields[1] == "Write":
			d.WrittenBytes = value
		}
	})
	return list
}

// parseIOStat reads version 2's io.stat: "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0".
func parseIOStat(data []byte) []DeviceIO {
	var list []DeviceIO
	eachLine(data, func(line []byte) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			return
		}
		var d *DeviceIO
		if list, d = device(list, fields[0]); d == nil {
			return
		}
		into := map[string]*uint64{"rbytes": &d.ReadBytes, "wbytes": &d.WrittenBytes, "rios": &d.Reads, "wios": &d.Writes}
		for _, field := range fields[1:] {
			key, text, _ := strings.Cut(field, "=")
			if value, err := strconv.ParseUint(text, 10, 64); err == nil && into[key] != nil {
				*into[key] = value
			}
		}
	})
	return list
}

// ignoredInterfaces are the beginnings of the names of interfaces that cAdvisor leaves out: other pods' ends and the
// loopback.
var ignoredInterfaces = []string{"lo", "veth", "docker", "nerdctl"}

// parseNetDev reads /proc/<pid>/net/dev.
func parseNetDev(data []byte) []Interface {
	var list []Interface
	eachLine(data, func(line []byte) {
		name, rest, ok := strings.Cut(string(line), ":")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 12 {
			return
		}
		i := Interface{Name: strings.TrimSpace(name)}
		for _, prefix := range ignoredInterfaces {
			if strings.HasPrefix(strings.ToLower(i.Name), prefix) {
				return
			}
		}
		for at, into := range map[int]*uint64{
			0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped,
			8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrors, 11: &i.TxDropped,
		} {
			value, err := strconv.ParseUint(fields[at], 10, 64)
			if err != nil {
				return
			}
			*into = value
		}
		list = append(list, i)
	})
	return list
}
