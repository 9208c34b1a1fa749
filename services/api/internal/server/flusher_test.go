package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

// deadlines notes the deadlines of an answer.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// A client that takes nothing of a log loses its connection in the end, whichever log it is. One of HTTP/2 doesn't lose
// it because a log is silent.
func TestClientsThatTakeNothing(t *testing.T) {
	b := logged(t, "enableSystemLogQuery: true\n")
	path := filepath.Join(b.dir, "0.log")
	if err := os.WriteFile(path, []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	b.pod(path, topic.ContainerRunning)
	for _, path := range []string{
		"/logs/syslog", "/logs/?query=kubelet", "/logs/?query=other", "/containerLogs/ns/web/app",
	} {
		for _, version := range []int{1, 2} {
			answer := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			request := httptest.NewRequest("GET", path, nil)
			request.ProtoMajor = version
			b.service.routes().ServeHTTP(answer, request)
			if answer.Code != http.StatusOK || len(answer.set) < version || answer.set[0].Before(time.Now()) {
				t.Errorf("%s: %d, deadlines %v; want one for each part", path, answer.Code, answer.set)
				continue
			}
			if last := answer.set[len(answer.set)-1]; last.IsZero() != (version == 2) {
				t.Errorf("%s over HTTP/%d: the last deadline is %v", path, version, last)
			}
		}
	}
}
