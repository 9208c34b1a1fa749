package cgroup

import "bytes"

func (t *Tree) cpu2(f *files, cgroup string, all bool) *CPU {
	dir := t.dir("cpu", cgroup)
	c, found := &CPU{}, false
	eachKey(f.read(dir, "cpu.stat"), func(key []byte, v uint64) {
		switch string(key) {
		case "usage_usec":
			c.Total, found = v*1000, true
		case "user_usec":
			c.User = v * 1000
		case "system_usec":
			c.System = v * 1000
		case "nr_periods":
			c.Periods = v
		case "nr_throttled":
			c.Throttled = v
		case "throttled_usec":
			c.ThrottledTime = v * 1000
		case "nr_bursts":
			c.Bursts = v
		case "burst_usec":
			c.BurstTime = v * 1000
		}
	})
	if !found {
		return nil
	}
	c.Pressure = t.pressure(f, cgroup, "cpu")
	if !all {
		return c
	}
	if weight := f.number(dir, "cpu.weight", 0); weight > 0 && weight <= 10000 {
		c.Shares = sharesOf(weight)
	}
	quota, period, _ := bytes.Cut(bytes.TrimSpace(f.read(dir, "cpu.max")), []byte{' '})
	if n, ok := number(quota); ok && n != Unlimited {
		c.Quota = n
	}
	c.Period, _ = number(period)
	return c
}

// sharesOf turns a weight of version 2 (1 to 10000) into version 1's shares (2 to 262144), which metrics use
// (KEP-2254).
func sharesOf(weight uint64) uint64 { return 2 + (weight-1)*262142/9999 }

func (t *Tree) memory2(f *files, cgroup string, all bool) *Memory {
	dir := t.dir("memory", cgroup)
	m := &Memory{Limit: Unlimited, SwapLimit: Unlimited, Reservation: Unlimited, Version2: true}
	usage, ok := number(f.read(dir, "memory.current"))
	stat := f.read(dir, "memory.stat")
	if !ok && (cgroup != "/" || stat == nil) {
		return nil
	}
	fill(stat, map[string]*uint64{
		"anon": &m.RSS, "file": &m.Cache, "kernel": &m.Kernel, "file_mapped": &m.Mapped, "file_dirty": &m.Dirty,
		"file_writeback": &m.Writeback,
		"active_file":    &m.ActiveFile, "inactive_file": &m.InactiveFile, "pgfault": &m.Faults, "pgmajfault": &m.MajorFaults,
		"pgscan":  &m.Scanned,
		"pgsteal": &m.Stolen, "workingset_refault_file": &m.RefaultedFile, "workingset_refault_anon": &m.RefaultedAnon,
	})
	m.Usage = usage
	if !ok {
		// The root has no account of its own; anonymous memory and files are what version 1 counts there.
		m.Usage = m.RSS + m.Cache
		m.Swap = t.swapInUse(f)
	}
	m.workingSet()
	m.Limit = f.number(dir, "memory.max", Unlimited)
	m.SwapLimit = f.number(dir, "memory.swap.max", Unlimited)
	m.SwapBound = m.SwapLimit
	if ok {
		m.Swap = f.number(dir, "memory.swap.current", 0)
	}
	m.Pressure = t.pressure(f, cgroup, "memory")
	if !all {
		return m
	}
	m.MaxUsage = f.number(dir, "memory.peak", 0)
	m.Reservation = f.number(dir, "memory.min", 0)
	eachKey(f.read(dir, "memory.events"), func(key []byte, v uint64) {
		switch string(key) {
		case "high":
			m.EventsHigh = v
		case "max":
			m.EventsMax, m.FailCount = v, v
		case "oom_kill":
			m.OOMKills = v
		}
	})
	return m
}

// swapInUse is the machine's, in bytes.
func (t *Tree) swapInUse(f *files) uint64 {
	var total, free uint64
	eachLine(f.read(t.proc(), "meminfo"), func(line []byte) {
		name, rest, _ := bytes.Cut(line, []byte{':'})
		kb, ok := number(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB")))
		switch {
		case !ok:
		case string(name) == "SwapTotal":
			total = kb << 10
		case string(name) == "SwapFree":
			free = kb << 10
		}
	})
	return total - min(total, free)
}

// pressure is that of the cgroup. The root's is the machine's, which some kernels tell only in /proc.
func (t *Tree) pressure(f *files, cgroup, resource string) *Pressure {
	p := parsePressure(f.read(t.dir("", cgroup), resource+".pressure"))
	if p == nil && cgroup == "/" {
		p = parsePressure(f.read(t.proc(), "pressure/"+resource))
	}
	return p
}
