package topic_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
)

// recorded is a message as a release's daemon said it. testdata/<version>/<topic>.jsonl has one per line, and
// <topic>.reply.jsonl the replies of a call. No file is ever changed; test/e2e/skew records those of a new release.
type recorded struct {
	Subject string            `json:"subject"`
	Header  map[string]string `json:"header"`
	Data    json.RawMessage   `json:"data"`
}

// What the daemons of earlier releases said is understood: readers take it, and nothing of it gets lost.
func TestRecordedMessages(t *testing.T) {
	files, err := filepath.Glob("testdata/v*/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded messages: %v", err)
	}
	byName := map[string]bus.Topic{}
	for _, tp := range topic.All() {
		byName[tp.Name()] = tp
	}
	for _, file := range files {
		name, isReply := strings.CutSuffix(strings.TrimSuffix(filepath.Base(file), ".jsonl"), ".reply")
		tp := byName[name]
		if tp == nil {
			t.Errorf("%s: there is no topic %s any more: its readers and writers of that release are alone", file, name)
			continue
		}
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			payload := tp.Payload()
			if isReply {
				payload = replies[name]
			}
			for i, m := range readRecorded(t, file) {
				if len(m.Data) > 0 {
					data := m.Data
					for _, field := range removed[name] {
						if !isReply && bytes.Contains(data, []byte(`"`+field+`":`)) {
							data = without(t, data, field)
						}
					}
					checkWhole(t, fmt.Sprintf("%s:%d", file, i+1), data, payload)
				}
				if tp.Kind() != bus.KindCall {
					checkTaken(t, tp, bus.Message{Subject: m.Subject, Header: m.Header, Data: m.Data})
				}
			}
		})
	}
}

// What a release has said can't be changed any more. testdata/SHA256SUMS has what sha256sum says of each file. A new
// release adds lines.
func TestRecordedMessagesAreNeverChanged(t *testing.T) {
	text, err := os.ReadFile("testdata/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[file] = sum
	}
	files, err := filepath.Glob("testdata/v*/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file := strings.TrimPrefix(path, "testdata/")
		switch sums[file] {
		case fmt.Sprintf("%x", sha256.Sum256(data)):
		case "":
			t.Errorf("%s isn't in testdata/SHA256SUMS: there, run sha256sum %s >>SHA256SUMS", path, file)
		default:
			t.Errorf("%s was changed: take it from git again", path)
		}
		delete(sums, file)
	}
	for file := range sums {
		t.Errorf("testdata/%s was removed: take it from git again", file)
	}
}

func readRecorded(t *testing.T, file string) []recorded {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []recorded
	for line := range bytes.Lines(data) {
		var m recorded
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, m)
	}
	return all
}

// checkWhole decodes as the type and encodes again.
func checkWhole(t *testing.T, where string, data []byte, payload reflect.Type) {
	t.Helper()
	value := reflect.New(payload)
	if err := json.Unmarshal(data, value.Interface()); err != nil {
		t.Fatalf("%s no longer decodes: %v", where, err)
	}
	again, err := json.Marshal(value.Interface())
	if err != nil {
		t.Fatal(err)
	}
	if diff := lost(parse(t, data), parse(t, again), ""); diff != "" {
		t.Errorf("%s: %s", where, diff)
	}
}

// checkTaken gives the message to a reader, which must take it and have nothing to say of it.
func checkTaken(t *testing.T, tp bus.Topic, m bus.Message) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := bustest.New()
		reader := b.ConnWithLog("reader", slog.New(slog.NewTextHandler(&log, nil)))
		defer reader.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if tp.Kind() == bus.KindEvent {
			events := call(tp, "Subscribe", ctx, reader, bus.From{})[0]
			synctest.Wait()
			publish(t, b, m)
			time.Sleep(time.Minute)
			if _, ok := events.TryRecv(); !ok {
				t.Errorf("the reader of %s didn't take it: %s", tp.Name(), m.Data)
			}
		} else {
			publish(t, b, m)
			out := call(tp, "Read", ctx, reader)
			if err, _ := out[1].Interface().(error); err != nil || out[0].Len() != 1 && !m.Tombstone() {
				t.Errorf("the reader of %s didn't take it (%v): %s", tp.Name(), err, m.Data)
			}
		}
		if log.Len() > 0 {
			t.Errorf("the reader said: %s", log.String())
		}
		cancel()
		synctest.Wait()
	})
}

func publish(t *testing.T, b *bustest.Bus, m bus.Message) {
	t.Helper()
	writer := b.Conn("writer")
	defer writer.Close()
	if err := writer.Transport().Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// call calls a method of the topic, whose type depends on its payload's.
func call(tp bus.Topic, method string, args ...any) []reflect.Value {
	in := []reflect.Value{}
	for _, arg := range args {
		in = append(in, reflect.ValueOf(arg))
	}
	return reflect.ValueOf(tp).MethodByName(method).Call(in)
}
