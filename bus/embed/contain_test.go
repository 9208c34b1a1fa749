package embed

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"kubelot.dev/bus/internal/layout"
)

// With the key of each daemon in turn, everything is tried by which it could speak for others, read what it may not, or
// change the bus. Nothing of it has an effect. The same attempts past the gate have, so the test would notice.
func TestATakenOverDaemonIsContained(t *testing.T) {
	crew, err := BuiltinCrew()
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range crew.Daemons {
		t.Run(member.Name, func(t *testing.T) {
			s := newSiege(t, crew, member)
			if breaches := s.run(t, nats.SetCustomDialer(socketDialer{s.bus.options.Socket})); len(breaches) > 0 {
				t.Errorf("%d breaches: %s", len(breaches), strings.Join(breaches[:min(len(breaches), 40)], "\n"))
			}
			if s.attempts < 200 {
				t.Errorf("only %d attempts: the list of them is broken", s.attempts)
			}
		})
	}
}

// Without the gate's screen, the server's permissions alone let a daemon write into others' subjects.
func TestTheSiegeSeesBreaches(t *testing.T) {
	crew, err := BuiltinCrew()
	if err != nil {
		t.Fatal(err)
	}
	lease := crew.Daemons[slices.IndexFunc(crew.Daemons, func(m Member) bool { return m.Name == "lease" })]
	s := newSiege(t, crew, lease)
	found := s.run(t, nats.InProcessServer(s.bus.server.admin.server))
	end := time.Now().Add(time.Minute)
	for _, want := range []string{
		"pod.update.x: reply to a message", "history.node.machine: delivered by a reader",
		"pod.update.x: reply to a direct get",
		"pod.update.x: reply to STREAM.INFO", "_INBOX.api.x.y: reply to a message", "there are readers of others",
	} {
		for !slices.Contains(found, want) && time.Now().Before(end) { // they come in their own time
			s.settle(t)
			found = s.found()
		}
		if !slices.Contains(found, want) {
			t.Errorf("the siege doesn't see %q; it sees %s", want, strings.Join(found, "\n"))
		}
	}
}

type socketDialer struct{ path string }

func (d socketDialer) Dial(_, _ string) (net.Conn, error) { return net.Dial("unix", d.path) }

// siege is one member's attack on the bus.
type siege struct {
	crew     Crew
	member   Member
	bus      *liveBus
	own      *nats.Conn // the bus's own user, who sees all
	nc       *nats.Conn // the attacker
	attempts int

	mu       sync.Mutex
	breaches map[string]bool
}

func newSiege(t *testing.T, crew Crew, member Member) *siege {
	s := &siege{crew: crew, member: member, breaches: map[string]bool{}}
	s.bus = startBus(t, func(b *liveBus) { b.options.Crew = crew })
	own, err := s.bus.server.admin.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	s.own = own
	return s
}

// run attacks by a connection of the member, and returns what had an effect that it must not have.
func (s *siege) run(t *testing.T, way nats.Option) []string {
	s.tellSecrets(t)
	before := s.complete(t)
	if _, err := s.own.Subscribe(">", s.observe); err != nil {
		t.Fatal(err)
	}
	s.flush(t, s.own)
	s.connect(t, way)
	for _, victim := range s.victims() {
		s.inject(t, victim)
		s.eavesdrop(t, victim)
	}
	s.abuseAPI(t)
	s.flush(t, s.nc)
	s.tellSecrets(t) // to those who listen by now
	s.settle(t)
	after := s.inventory(t)
	for what, was := range before {
		if after[what] != was {
			s.breach(what + " has changed: " + was + " " + after[what])
		}
	}
	for what := range after {
		if _, was := before[what]; !was && !s.mine(what) {
			s.breach(what + " is new")
		}
	}
	return s.found()
}

// found are the breaches so far.
func (s *siege) found() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.breaches))
}

func (s *siege) breach(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breaches[what] = true
}

// connect makes the attacker's connection, whose own inbox shows what it gets.
func (s *siege) connect(t *testing.T, way nats.Option) {
	t.Helper()
	seed, err := os.ReadFile(KeyFile(s.bus.options.KeyDir, s.member.Name))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	s.nc, err = nats.Connect("nats://127.0.0.1:1", way, nats.Nkey(public, pair.Sign), nats.NoReconnect(),
		nats.CustomInboxPrefix("_INBOX."+s.member.Name), nats.SkipSubjectValidation(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.nc.Close)
	s.listen(t, "_INBOX."+s.member.Name+".>")
}

func (s *siege) listen(t *testing.T, subject string) {
	t.Helper()
	if _, err := s.nc.Subscribe(subject, s.received); err != nil {
		t.Fatalf("subscribe to %s: %v", subject, err)
	}
}

const secret = "the secret of "

// tellSecrets publishes on all subjects what shows where it was read.
func (s *siege) tellSecrets(t *testing.T) {
	t.Helper()
	for _, subject := range s.subjects() {
		if err := s.own.Publish(subject, []byte(secret+subject)); err != nil {
			t.Fatal(err)
		}
	}
	s.flush(t, s.own)
}

// received looks at what the attacker gets.
func (s *siege) received(m *nats.Msg) {
	nothing := s.member.ReadsAll && m.Header.Get("Status") == "404" // it may ask for all states, but there is none
	if strings.Contains(m.Subject, ".forbidden.") && !nothing {
		s.breach("an answer to " + m.Subject)
	}
	for _, subject := range s.subjects() {
		if strings.HasSuffix(string(m.Data), secret+subject) && !s.mayRead(subject) {
			s.breach(subject + " was read")
		}
	}
}

// observe looks at what passes on the bus while nobody but the attacker does anything.
func (s *siege) observe(m *nats.Msg) {
	told := secret + strings.TrimPrefix(m.Subject, layout.HistoryPrefix) // by the test
	if s.mine(m.Subject) || string(m.Data) == told || s.isBus(m.Subject) || s.isBus(m.Reply) {
		return
	}
	s.breach(m.Subject + ": " + describe(m))
}

// isBus reports whether the subject is an inbox of the bus's own user.
func (s *siege) isBus(subject string) bool {
	tokens := strings.Split(subject, ".")
	return len(tokens) == 3 && tokens[0] == "_INBOX" &&
		!slices.ContainsFunc(s.crew.Daemons, func(m Member) bool { return m.Name == tokens[1] })
}

// mine reports whether a message on the subject is the attacker's right, or the server's own.
func (s *siege) mine(subject string) bool {
	name := s.member.Name
	patterns := slices.Concat(s.member.Publishes, s.member.Calls, []string{
		"_INBOX." + name + ".>", "_REPLY." + name + ".>", "position." + name + ".>", "$JS.EVENT.>",
		"$JS.API.STREAM.INFO.*", "$JS.API.DIRECT.GET.>", "$JS.API.CONSUMER.CREATE.*.*.>",
	})
	for _, call := range s.member.Serves {
		patterns = append(patterns, "_REPLY.*."+call+".*")
	}
	subject = strings.TrimPrefix(strings.TrimPrefix(subject, layout.HistoryPrefix), layout.ReplacePrefix)
	return slices.ContainsFunc(patterns, func(p string) bool { return server.SubjectMatchesFilter(subject, p) }) ||
		strings.HasPrefix(subject, "$JS.FC.") && strings.Contains(subject, ".kubelot-"+name+"-")
}

func (s *siege) mayRead(subject string) bool {
	if s.member.ReadsAll && !strings.HasPrefix(subject, "position.") && !s.isCall(subject) {
		return true
	}
	patterns := slices.Concat(s.member.ReadsState, s.member.ReadsEvent, s.member.Serves)
	return slices.ContainsFunc(patterns, func(p string) bool { return server.SubjectMatchesFilter(subject, p) }) ||
		strings.HasPrefix(subject, "position."+s.member.Name+".")
}

func (s *siege) isCall(subject string) bool {
	return slices.ContainsFunc(s.crew.Daemons, func(m Member) bool { return slices.Contains(m.Serves, subject) })
}

// subjects are one of each topic, of each call, and of each member's positions.
func (s *siege) subjects() []string {
	var list []string
	for _, pattern := range slices.Concat(s.crew.State, s.crew.Event) {
		if !strings.HasSuffix(pattern, "event.*") {
			list = append(list, example(pattern))
		}
	}
	for _, m := range s.crew.Daemons {
		list = append(list, "health."+m.Name, "event."+m.Name, "position."+m.Name+".d.f")
		list = append(list, m.Serves...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func example(pattern string) string {
	return strings.ReplaceAll(strings.ReplaceAll(pattern, "*", "x"), ">", "x")
}

// victims are the subjects on which the attacker must not speak: others' topics, inboxes, and the server's own.
func (s *siege) victims() []string {
	list := slices.DeleteFunc(s.subjects(), s.mine)
	for _, subject := range list {
		list = append(list, layout.ReplacePrefix+subject)
	}
	for _, m := range s.crew.Daemons {
		if m.Name == s.member.Name {
			continue
		}
		list = append(list, "_INBOX."+m.Name+".x.y", "$JS.FC.STATE.kubelot-"+m.Name+"-x.y")
		for _, call := range m.Calls {
			if !slices.Contains(s.member.Serves, call) {
				list = append(list, "_REPLY."+m.Name+"."+call+".x")
			}
		}
	}
	list = append(list, "_INBOX.x", "history.pod.object.x", "$JS.API.STREAM.PURGE.STATE", "$JS.API.STREAM.DELETE.EVENT",
		"$JS.ACK.STATE.x.1.1.1.1.1", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "_REFUSED.x", "$G.x", "_R_.x", "$NRG.x")
	return slices.DeleteFunc(list, s.mine)
}

// complete is the inventory once the bus has kept, and recorded, what was told.
func (s *siege) complete(t *testing.T) map[string]string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		found := s.inventory(t)
		missing := slices.DeleteFunc(s.subjects(), func(subject string) bool {
			recorded := !slices.ContainsFunc(
				s.crew.State,
				func(p string) bool { return server.SubjectMatchesFilter(subject, p) },
			)
			kept := s.mine(subject) || s.isCall(subject)
			for what := range found {
				stream, of, _ := strings.Cut(what, " ")
				recorded = recorded || of == layout.HistoryPrefix+subject
				kept = kept || of == subject && stream != layout.StreamHistory
			}
			return kept && (recorded || s.mine(subject))
		})
		if len(missing) == 0 {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("the bus doesn't keep %v", missing)
		}
	}
}

// inventory is what the bus keeps of others, and its streams and readers, as text.
func (s *siege) inventory(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := s.bus.server.admin.do(within(t), func(ctx context.Context, js jetstream.JetStream) error {
		streams := js.ListStreams(ctx)
		for info := range streams.Info() {
			config, err := json.Marshal(info.Config)
			if err != nil {
				return err
			}
			found["stream "+info.Config.Name] = string(config)
			stream, err := js.Stream(ctx, info.Config.Name)
			if err != nil {
				return err
			}
			full, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
			if err != nil {
				return err
			}
			for subject := range full.State.Subjects {
				if !s.mine(subject) {
					found[info.Config.Name+" "+subject] = "kept"
				}
			}
			consumers := stream.ListConsumers(ctx)
			for c := range consumers.Info() {
				if !strings.HasPrefix(c.Name, "kubelot-"+s.member.Name+"-") || c.Config.Durable != "" {
					s.breach("there are readers of others")
				}
			}
		}
		return streams.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func (s *siege) flush(t *testing.T, nc *nats.Conn) {
	t.Helper()
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Fatalf("%v; the last error was %v", err, nc.LastError())
	}
}

// settle waits until the server has done what it was asked for: it answers requests in order, and delivers soon after.
func (s *siege) settle(t *testing.T) {
	t.Helper()
	for range 3 {
		s.inventory(t)
		time.Sleep(50 * time.Millisecond)
		s.flush(t, s.nc)
		s.flush(t, s.own)
	}
}
