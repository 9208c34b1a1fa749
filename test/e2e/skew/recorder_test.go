package skew

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/bus/topic"
	"kubelot.dev/test/e2e/kit"
)

// servers are the daemons that answer the calls, by the first word of the call's name.
var servers = map[string]string{
	"volume": "volume", "resource": "resource", "pod": "podsync", "manifest": "podsync", "status": "status",
	"stats": "stats", "gc": "gc", "shutdown": "gc",
}

// recorded is a message as the bus carried it.
type recorded struct {
	Subject string            `json:"subject"`
	Header  map[string]string `json:"header"`
	Data    json.RawMessage   `json:"data,omitempty"`
}

// recorder keeps the messages of which each has a field or a value's kind that no other one of its topic had.
type recorder struct {
	t *testing.T
	b *kit.Bed

	mu   sync.Mutex
	seen map[string]map[string]bool
	kept map[string][]recorded // by topic

	waiting topic.Ref // a pod in a back-off
}

// as connects with the key of a daemon.
func (r *recorder) as(daemon string) bus.Transport {
	r.t.Helper()
	run := r.b.Node.RunDir()
	transport, err := nats.Dial(r.t.Context(), nats.Options{
		Socket: filepath.Join(run, "bus.sock"), KeyFile: filepath.Join(run, "keys", daemon+".nk"), Daemon: daemon,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(transport.Close)
	return transport
}

// listen takes what is said from the beginning, and the requests of the calls.
func (r *recorder) listen() {
	ctx := r.t.Context()
	reader := r.as("cli")
	for _, tp := range topic.All() {
		if tp.Kind() == bus.KindCall {
			owner, _, _ := strings.Cut(tp.Name(), ".")
			go r.overhear(r.as(servers[owner]), tp.Name())
			continue
		}
		messages := reader.WatchEvents(ctx, []string{bus.Filter(tp)}, bus.From{Since: time.Now().Add(-time.Hour)})
		go func() {
			for d := range messages {
				if !d.Synced {
					r.keep(tp.Name(), d.Message)
				}
			}
		}()
	}
}

// overhear gets a copy of each request and leaves the answer to the daemon.
func (r *recorder) overhear(server bus.Transport, subject string) {
	err := server.Serve(r.t.Context(), subject, func(ctx context.Context, m bus.Message) bus.Message {
		r.keep(subject, m)
		<-ctx.Done()
		return bus.Message{}
	})
	if err != nil {
		r.t.Error(err)
	}
}

// keep keeps a message that shows something new.
func (r *recorder) keep(name string, m bus.Message) {
	shape := map[string]bool{fmt.Sprint("tombstone ", m.Tombstone()): true}
	if len(m.Data) > 0 {
		var v any
		if err := json.Unmarshal(m.Data, &v); err != nil {
			r.t.Errorf("%s: %v", m.Subject, err)
			return
		}
		paths(v, "", shape)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.seen[name]
	if known == nil {
		known = map[string]bool{}
		r.seen[name] = known
	}
	fresh := false
	for path := range shape {
		fresh = fresh || !known[path]
		known[path] = true
	}
	if fresh {
		r.kept[name] = append(r.kept[name], recorded{m.Subject, m.Header, m.Data})
	}
}

// paths are the fields of a value, with its short words, such as phases and reasons.
func paths(v any, path string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			paths(field, path+"."+name, into)
		}
	case []any:
		for _, element := range v {
			paths(element, path+"[]", into)
		}
	default:
		into[path] = true
	}
}

func (r *recorder) ask(daemon string, call bus.Topic, data []byte) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), kit.Patience)
	defer cancel()
	transport := r.as(daemon)
	<-transport.Connects(ctx)
	header := map[string]string{bus.HeaderSchema: fmt.Sprint(call.Schema()), bus.HeaderDaemon: daemon}
	reply, err := transport.Request(ctx, bus.Message{Subject: call.Name(), Header: header, Data: data})
	if err != nil {
		r.t.Fatalf("%s asks %s: %v", daemon, call.Name(), err)
	}
	reply.Subject = "reply"
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[call.Name()+".reply"] = append(r.kept[call.Name()+".reply"],
		recorded{reply.Subject, reply.Header, reply.Data})
}

func (r *recorder) encode(request any) []byte {
	r.t.Helper()
	data, err := json.Marshal(request)
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// write writes a file per topic, a message per line.
func (r *recorder) write(dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for name, messages := range r.kept {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		for _, m := range messages {
			if err := encoder.Encode(m); err != nil {
				r.t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), text.Bytes(), 0o644); err != nil {
			r.t.Fatal(err)
		}
		r.t.Logf("%s: %d messages, %d bytes", name, len(messages), text.Len())
	}
}
