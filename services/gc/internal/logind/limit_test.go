package logind

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// A logind that doesn't heed the file is told of it once: it isn't written again. A later change of the limit counts.
func TestLogindIsToldOnce(t *testing.T) {
	b := newBed(t, 5*time.Second)
	b.logind.Deafen()
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := New(Options{Period: 30 * time.Second, ConfDir: b.dir, Log: slog.New(slog.DiscardHandler)})
	file := filepath.Join(b.dir, confFile)
	for told := range 3 {
		if err := l.raise(t.Context(), conn); !errors.Is(err, errLimit) {
			t.Errorf("error %v", err)
		}
		if err := os.Remove(file); (err == nil) != (told == 0) {
			t.Errorf("told %d times, the file: %v", told, err)
		}
	}
	newBed(t, time.Minute)
	conn, err = dbus.ConnectSystemBus()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := l.raise(t.Context(), conn); err != nil || l.Limit() != time.Minute {
		t.Errorf("limit %s, %v", l.Limit(), err)
	}
}
