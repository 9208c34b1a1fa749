package driver

import (
	"strings"
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"

	"kubelot.dev/bus/topic"
)

func TestRedact(t *testing.T) {
	request := &csiapi.NodePublishVolumeRequest{
		Secrets:       map[string]string{"user": "me", "password": "s3cret", "longer": "s3cret and more"},
		VolumeContext: map[string]string{KeyTokens: `{"a":{"token":"t0ken","expirationTimestamp":"2026-01-02T03:04:05Z"}}`},
	}
	for text, want := range map[string]string{
		"login me:s3cret failed": "login me:*** failed",
		"s3cret and more":        "***",
		"bearer t0ken":           "bearer ***",
		"got " + request.GetVolumeContext()[KeyTokens]: "got ***",
		"plain": "plain",
	} {
		if got := redact(text, request); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
	if got := redact("as it is", &csiapi.NodeGetInfoRequest{}); got != "as it is" {
		t.Errorf("it became %q", got)
	}
}

func TestLine(t *testing.T) {
	if got := Line("a\nb\x1b[31m"); got != "a b [31m" {
		t.Errorf("%q", got)
	}
	if got := Line(strings.Repeat("é", maxError)); len(got) > maxError+3 || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-10:])
	}
}

// Only what changes something for volumes wakes those who wait.
func TestChanges(t *testing.T) {
	d := New()
	defer d.Close()
	woken := func() bool {
		select {
		case <-d.Changes():
			return true
		default:
			return false
		}
	}
	d.Synced()
	woken()
	at := topic.PluginEndpoint{Endpoint: "/s"}
	csi := map[string]topic.Plugin{"k": {Type: topic.CSIPlugin, Name: "d", PluginEndpoint: at}}
	d.Registered(csi)
	if !woken() {
		t.Error("a driver came, and nobody was told")
	}
	d.Registered(csi)
	csi["other"] = topic.Plugin{Type: topic.DevicePlugin, Name: "x/y", PluginEndpoint: at}
	d.Registered(csi)
	d.Registered(nil)
	if woken() {
		t.Error("somebody was told of what changes nothing")
	}
}
