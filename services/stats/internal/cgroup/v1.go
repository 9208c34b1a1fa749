package cgroup

import "bytes"

// clockTick is the nanoseconds of a tick in cpuacct.stat: USER_HZ is 100 on every architecture that Go runs on.
const clockTick = 10_000_000

// unlimited1 is from where on version 1's limit is none: the kernel rounds the largest number to pages.
const unlimited1 = 1 << 62

func limit1(n uint64) uint64 {
	if n >= unlimited1 {
		return Unlimited
	}
	return n
}

func (t *Tree) cpu1(f *files, cgroup string, all bool) *CPU {
	acct := t.dir("cpuacct", cgroup)
	total, ok := number(f.read(acct, "cpuacct.usage"))
	if !ok {
		return nil
	}
	c := &CPU{Total: total}
	if !all {
		return c
	}
	eachKey(f.read(acct, "cpuacct.stat"), func(key []byte, v uint64) {
		switch string(key) {
		case "user":
			c.User = v * clockTick
		case "system":
			c.System = v * clockTick
		}
	})
	cpu := t.dir("cpu", cgroup)
	eachKey(f.read(cpu, "cpu.stat"), func(key []byte, v uint64) {
		switch string(key) {
		case "nr_periods":
			c.Periods = v
		case "nr_throttled":
			c.Throttled = v
		case "throttled_time":
			c.ThrottledTime = v
		case "nr_bursts":
			c.Bursts = v
		case "burst_time":
			c.BurstTime = v
		}
	})
	c.Shares = f.number(cpu, "cpu.shares", 0)
	c.Period = f.number(cpu, "cpu.cfs_period_us", 0)
	if quota := f.number(cpu, "cpu.cfs_quota_us", Unlimited); quota != Unlimited {
		c.Quota = quota
	}
	return c
}

func (t *Tree) memory1(f *files, cgroup string, all bool) *Memory {
	dir := t.dir("memory", cgroup)
	usage, ok := number(f.read(dir, "memory.usage_in_bytes"))
	if !ok {
		return nil
	}
	m := &Memory{Usage: usage, Limit: Unlimited, SwapLimit: Unlimited, Reservation: Unlimited}
	stat := f.read(dir, "memory.stat")
	eachKey(stat, func(key []byte, v uint64) {
		key, total := bytes.CutPrefix(key, []byte("total_"))
		if total {
			m.stat1(key, v)
		}
	})
	m.workingSet()
	m.Limit = limit1(f.number(dir, "memory.limit_in_bytes", Unlimited))
	// The limit is of memory and swap together.
	if both := limit1(f.number(dir, "memory.memsw.limit_in_bytes", Unlimited)); both != Unlimited {
		m.SwapLimit = both - min(both, m.Limit)
	}
	if !all {
		return m
	}
	m.MaxUsage = f.number(dir, "memory.max_usage_in_bytes", 0)
	m.FailCount = f.number(dir, "memory.failcnt", 0)
	m.Kernel = f.number(dir, "memory.kmem.usage_in_bytes", 0)
	m.Reservation = limit1(f.number(dir, "memory.soft_limit_in_bytes", Unlimited))
	eachKey(f.read(dir, "memory.oom_control"), func(key []byte, v uint64) {
		if string(key) == "oom_kill" {
			m.OOMKills = v
		}
	})
	return m
}

// stat1 takes a line of memory.stat that counts the cgroups below too.
func (m *Memory) stat1(key []byte, v uint64) {
	switch string(key) {
	case "cache":
		m.Cache = v
	case "rss":
		m.RSS = v
	case "mapped_file":
		m.Mapped = v
	case "swap":
		m.Swap = v
	case "pgfault":
		m.Faults = v
	case "pgmajfault":
		m.MajorFaults = v
	case "active_file":
		m.ActiveFile = v
	case "inactive_file":
		m.InactiveFile = v
	case "dirty":
		m.Dirty = v
	case "writeback":
		m.Writeback = v
	case "workingset_refault_file":
		m.RefaultedFile = v
	case "workingset_refault_anon":
		m.RefaultedAnon = v
	}
}

func (m *Memory) workingSet() { m.WorkingSet = m.Usage - min(m.Usage, m.InactiveFile) }

func (t *Tree) io1(f *files, cgroup string) []DeviceIO {
	dir := t.dir("blkio", cgroup)
	list := parseBlkio(f.read(dir, "blkio.throttle.io_service_bytes_recursive"), nil, false)
	return parseBlkio(f.read(dir, "blkio.throttle.io_serviced_recursive"), list, true)
}
