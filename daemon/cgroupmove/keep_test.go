package cgroupmove

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// It is looked at once and then each minute, and a failure that lasts is logged once.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute+time.Second)
		defer stop()
		answers := []error{errors.New("one"), errors.New("one"), nil, errors.New("one"), errors.New("two"), nil}
		looks := 0
		keep(ctx, func() error {
			looks++
			return answers[looks-1]
		}, log)
		if looks != len(answers) {
			t.Errorf("looked %d times in five minutes", looks)
		}
		one, two := strings.Count(out.String(), "error=one"), strings.Count(out.String(), "error=two")
		if one != 2 || two != 1 {
			t.Errorf("logged:\n%s", &out)
		}
	})
}

func TestWithoutNames(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	Own(t.Context(), "", log)()
	System(t.Context(), "", log)
	if out.Len() > 0 {
		t.Errorf("logged:\n%s", &out)
	}
	for _, name := range []string{"/", "//", "/a/.."} {
		out.Reset()
		System(t.Context(), name, log)
		if !strings.Contains(out.String(), "systemCgroups names the root") {
			t.Errorf("%q: logged:\n%s", name, &out)
		}
	}
}
