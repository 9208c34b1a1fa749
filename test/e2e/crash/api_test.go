package crash

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"kubelot.dev/test/e2e/kit"
)

// TestStreamsOutliveDaemons kills every other daemon, the bus too, under an open session and a followed log.
func TestStreamsOutliveDaemons(t *testing.T) {
	bed.NotCompact(t, "the daemon that carries the stream dies with the others")
	ns := bed.Namespace(t)
	ns.Apply(kit.TalkPod)
	ns.Running("talk")
	in, out := io.Pipe()
	shell := ns.Session(nil, in, "exec", "-i", "talk", "--", "sh")
	say := func(word string) {
		t.Helper()
		if _, err := io.WriteString(out, "echo "+word+"\n"); err != nil {
			t.Fatal(err)
		}
		shell.Shows(word + "\n")
	}
	log := ns.Session(nil, nil, "logs", "-f", "talk")
	say("before")
	log.Shows("line 3\n")
	for _, daemon := range daemons {
		kill(t, bed, daemon)
		say("without-" + daemon)
		log.Shows(fmt.Sprintf("line %d\n", strings.Count(log.String(), "\n")+3))
	}
	kit.Eventually(t, "the crew", crewRuns)
	say("after")
	out.Close()
	shell.Kill()
	log.Kill()
	number := 0
	text := log.String()
	// kubectl may have died in the middle of a line
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		if number++; line != fmt.Sprintf("line %d\n", number) {
			t.Fatalf("line %d is %q", number, line)
		}
	}
}

// TestNodeAPIWithoutAPIServer asks the node itself while the API server is away: what was allowed a moment ago is, what
// wasn't asked before isn't, and healthz answers.
func TestNodeAPIWithoutAPIServer(t *testing.T) {
	config, err := bed.ControlPlane.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true,
		Certificates:       certificate.Certificates, GetClientCertificate: certificate.GetClientCertificate,
	}}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	ask := func(url string) (int, string) {
		resp, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(body)
	}
	node := fmt.Sprintf("https://%s:%d", bed.Bed.Gateway, bed.Node.Port)
	kit.Eventually(t, "an answer", func() error {
		if code, body := ask(node + "/pods"); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	bed.ControlPlane.StopAPIServer()
	defer startAPIServer(t)
	if code, body := ask(node + "/pods"); code != http.StatusOK {
		t.Errorf("what was allowed: %d %s", code, body)
	}
	if code, body := ask(node + "/configz"); code != http.StatusInternalServerError ||
		!strings.HasPrefix(body, "Authorization error (user=kubernetes-admin, verb=get, resource=nodes, "+
			"subresource=configz)") {
		t.Errorf("what wasn't asked before: %d %s", code, body)
	}
	if code, body := ask(fmt.Sprintf("http://127.0.0.1:%d/healthz", bed.Node.HealthPort)); code != http.StatusOK ||
		body != "ok" {
		t.Errorf("healthz: %d %s", code, body)
	}
}
