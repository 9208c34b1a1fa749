package cgroup

// clockTick is a tick of cpuacct.stat in nanoseconds: USER_HZ is 100 on every architecture that Go runs on.
const clockTick = 10_000_000

// unlimited1 is the least value that means "no limit" in version 1. The kernel rounds the largest number to pages.
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
	fill(f.read(cpu, "cpu.stat"), map[string]*uint64{
		"nr_periods": &c.Periods, "nr_throttled": &c.Throttled, "throttled_time": &c.ThrottledTime, "nr_bursts": &c.Bursts,
		"burst_time": &c.BurstTime,
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
	// These lines include the cgroups below.
	fill(f.read(dir, "memory.stat"), map[string]*uint64{
		"total_cache": &m.Cache, "total_rss": &m.RSS, "total_mapped_file": &m.Mapped, "total_swap": &m.Swap,
		"total_pgfault":    &m.Faults,
		"total_pgmajfault": &m.MajorFaults, "total_active_file": &m.ActiveFile, "total_inactive_file": &m.InactiveFile,
		"total_dirty":     &m.Dirty,
		"total_writeback": &m.Writeback, "total_workingset_refault_file": &m.RefaultedFile,
		"total_workingset_refault_anon": &m.RefaultedAnon,
	})
	m.workingSet()
	m.Limit = limit1(f.number(dir, "memory.limit_in_bytes", Unlimited))
	m.SwapBound = limit1(f.number(dir, "memory.memsw.limit_in_bytes", Unlimited))
	if m.SwapBound != Unlimited {
		m.SwapLimit = m.SwapBound - min(m.SwapBound, m.Limit)
	}
	if !all {
		return m
	}
	m.MaxUsage = f.number(dir, "memory.max_usage_in_bytes", 0)
	m.FailCount = f.number(dir, "memory.failcnt", 0)
	m.Kernel = f.number(dir, "memory.kmem.usage_in_bytes", 0)
	m.Reservation = limit1(f.number(dir, "memory.soft_limit_in_bytes", Unlimited))
	fill(f.read(dir, "memory.oom_control"), map[string]*uint64{"oom_kill": &m.OOMKills})
	return m
}

func (m *Memory) workingSet() { m.WorkingSet = m.Usage - min(m.Usage, m.InactiveFile) }

func (t *Tree) io1(f *files, cgroup string) []DeviceIO {
	dir := t.dir("blkio", cgroup)
	list := parseBlkio(f.read(dir, "blkio.throttle.io_service_bytes_recursive"), nil, false)
	return parseBlkio(f.read(dir, "blkio.throttle.io_serviced_recursive"), list, true)
}
