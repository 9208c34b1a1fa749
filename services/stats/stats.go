package stats

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/stats/internal/kmsg"
	"kubelot.dev/services/stats/internal/ttlcache"
)

const (
	// interval is how often the facts are read again: memory, cores and disks can be added to a running machine.
	interval = time.Minute
	// lastPatience is how long the end waits for readings under way.
	lastPatience = 2 * time.Second
	// kernelLog is where the kernel says what it killed.
	kernelLog = "/dev/kmsg"
)

type (
	machineReader func() (topic.Machine, error)
	killFollower  func(ctx context.Context, found func(kmsg.Kill)) error
)

// Service publishes the machine's facts and answers for the node's usage. The state belongs to the goroutine of Run.
type Service struct {
	env     daemon.Env
	machine machineReader
	kills   killFollower
	loop    *loop.Loop
	state   *state
	ooms    *oomKills
	answers *answers
	// unread is how many of the topics have not been read yet. read is closed once all have.
	unread int
	read   chan struct{}
}

// Ports are what the service reads from.
type Ports struct {
	// Machine reads the machine's facts; the error names what could not be read. It is called once at a time.
	Machine func() (topic.Machine, error)
	// FSRoot is put before /sys/fs/cgroup and /proc.
	FSRoot string
	// Kills hands over every out-of-memory kill until ctx ends.
	Kills   func(ctx context.Context, found func(kmsg.Kill)) error
	Runtime runtimeStats
}

// New makes a service. It starts nothing. The error says what of the configuration or of the machine makes no sense.
func New(env daemon.Env, p Ports) (*Service, error) {
	k := env.Config.Kubelet
	tree, err := cgroup.New(p.FSRoot, k.CgroupDriver, k.CgroupRoot)
	if err != nil {
		return nil, err
	}
	r, err := newReport(env)
	if err != nil {
		return nil, err
	}
	boot, _ := cgroup.BootTime()
	s := &Service{
		env: env, machine: p.Machine, kills: p.Kills, loop: loop.New(env.Bus), state: newState(), ooms: newOOMKills(),
		read: make(chan struct{}),
	}
	s.answers = &answers{
		cgroups: &cgroups{tree: tree, rates: newRates(), system: systemCgroups(tree, k.KubeletCgroups,
			env.Config.RuntimeCgroups, k.SystemCgroups)},
		report:    r,
		boot:      boot,
		volumeAge: k.VolumeStatsAggPeriod.Duration,
		view:      s.view,
		sources: &sources{
			runtime: p.Runtime, runtimeTimeout: k.RuntimeRequestTimeout.Duration, rootDir: env.Config.RootDir,
			logsDir: env.Config.PodLogsDir,
			usage: func(ctx context.Context, r topic.VolumeUsageRequest) (topic.VolumeUsageReply, error) {
				return topic.VolumeUsage.Do(ctx, env.Bus, r)
			},
			mounts: filepath.Join(p.FSRoot, "proc/self/mountinfo"), report: r, walkTime: walkTimeout,
			walks:   newTurns(walkers),
			volumes: map[part]*ttlcache.Cell[volumeUsage]{}, files: map[part]*ttlcache.Cell[podFiles]{},
			counted: map[part]*ttlcache.Cell[layer]{}, problems: map[part]error{},
			rest: max(k.VolumeStatsAggPeriod.Duration, leastRest),
		},
	}
	if env.Metrics != nil {
		if err := daemon.RegisterMetrics(env.Metrics, "volumes and logs", &collector{answers: s.answers}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run is the stats daemon's work.
func Run(ctx context.Context, env daemon.Env) error {
	client, err := cri.Dial(env.Config.RuntimeEndpoint, cri.Options{
		ImageEndpoint: env.Config.ImageEndpoint, Timeout: env.Config.Kubelet.RuntimeRequestTimeout.Duration,
		Metrics: env.Metrics,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := New(env, Ports{
		Machine: machineOf(env.Config.RootDir), FSRoot: "/", Runtime: client,
		Kills: func(ctx context.Context, found func(kmsg.Kill)) error { return kmsg.Follow(ctx, kernelLog, found) },
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Run publishes and answers until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	group := ttlcache.NewGroup(ctx)
	s.answers.group, s.answers.sources.group = group, group
	s.answers.aside = func(asker context.Context, work func(context.Context)) {
		s.loop.Do(asker, func() { s.loop.Go(func() { work(ctx) }) })
	}
	defer group.Wait(lastPatience)
	defer s.loop.Wait()
	defer cancel(errors.New("stats stops"))
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	failed := make(chan error, 1)
	s.loop.Go(func() {
		if err := topic.StatsSummary.Serve(ctx, s.env.Bus, s.answers.reply); err != nil {
			failed <- err
		}
	})
	s.loop.Go(func() { s.followOOM(ctx) })
	s.pages()
	s.loop.Go(func() { s.followFacts(ctx) })
	s.env.Pulse.Of(ctx, s.loop.Inbox())
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case change := <-s.loop.Changes():
			change()
		}
	}
}

// followFacts publishes the machine's facts until ctx ends. They are read outside the loop: a root directory that hangs
// holds up nobody who asks for something else.
func (s *Service) followFacts(ctx context.Context) {
	type facts struct {
		topic.Machine
		err error
	}
	var cell ttlcache.Cell[facts]
	out := topic.NodeMachine.Writer(s.env.Bus)
	for ctx.Err() == nil {
		slow, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
		r := cell.Get(slow, s.answers.group, 0, patience, func(context.Context) (facts, error) {
			m, err := s.machine()
			return facts{m, err}, nil
		})
		cancel()
		if ctx.Err() != nil {
			return
		}
		err := cmp.Or(r.Err, r.Value.err)
		if r.Err == nil {
			s.loop.Do(ctx, func() { s.state.machine = r.Value.Machine })
			err = errors.Join(err, out.Set("", r.Value.Machine))
		}
		s.answers.report.problems.Set("facts of the machine", err)
		pause.For(ctx, interval)
	}
}

// subscribe has the messages of every topic that is read handled in the loop.
func (s *Service) subscribe(ctx context.Context) error {
	return errors.Join(
		follow(ctx, s, topic.PodUpdate, func(c bus.Change[topic.Pod]) {
			loop.Into(s.state.pods)(c)
			if c.Deleted {
				s.answers.sources.forget(c.Key)
			}
		}),
		follow(ctx, s, topic.PLEGEvent, func(c bus.Change[topic.PodObservation]) {
			loop.Into(s.state.seen)(c)
			s.answers.sources.keepLayers(c.Key, c.Value.Containers)
		}),
		follow(ctx, s, topic.VolumeState, loop.Into(s.state.volumes)),
	)
}

// follow has the loop handle every change of a topic, and notes when all that is retained has been read.
func follow[T any](ctx context.Context, s *Service, t bus.State[T], handle func(bus.Change[T])) error {
	s.unread++
	read := false
	return loop.Follow(ctx, s.loop, t, func(c bus.Change[T]) {
		handle(c)
		if c.Synced && !read {
			read = true
			if s.unread--; s.unread == 0 {
				close(s.read)
			}
		}
	})
}

// errUnread is why there is no answer: one without the pods would make the node look idle.
var errUnread = errors.New("kubelot-stats has not read yet which pods there are: try again, and if that doesn't " +
	"help, look whether kubelot-bus runs")

// view has the loop make a view of the pods. It waits until they have been read from the bus.
func (s *Service) view(ctx context.Context, uids []string) (view, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.read:
		return loop.Ask(ctx, s.loop, func() view { return s.state.view(s.env.Config.NodeName, uids) })
	case <-timer.C:
		return view{}, errUnread
	case <-ctx.Done():
		return view{}, context.Cause(ctx)
	}
}
