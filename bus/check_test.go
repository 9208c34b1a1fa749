package bus_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// A reader takes any message of its topic without a panic. What it takes it also takes after its own daemon has stated
// it again, as after a restart.
func FuzzChecks(f *testing.F) {
	type reader interface {
		bus.Topic
		Taken(key string, data []byte) ([]byte, error)
	}
	var readers []reader
	for _, t := range topic.All() {
		r, reads := t.(reader)
		if !reads {
			continue // a call has no check
		}
		golden := filepath.Join("topic", "testdata", fmt.Sprintf("%s.v%d.json", t.Name(), t.Schema()))
		data, err := os.ReadFile(golden)
		if err != nil {
			f.Fatal(err)
		}
		which := len(readers)
		readers = append(readers, r)
		f.Add(which, "", data)
		f.Add(which, "u1", data)
		f.Add(which, "u1.app.readiness", []byte(`{}`))
		f.Add(which, "u1", []byte(`{"pod":{"metadata":{"uid":"u1","name":"a\u0000"}}}`))
		f.Add(which, "u1", []byte(`null`))
	}
	f.Fuzz(func(t *testing.T, which int, key string, data []byte) {
		r := readers[((which%len(readers))+len(readers))%len(readers)]
		again, err := r.Taken(key, data)
		if err != nil {
			return
		}
		if _, err := r.Taken(key, again); err != nil {
			t.Errorf("%s takes %q and not what it encodes it as, %q: %v", r.Name(), data, again, err)
		}
	})
}
