package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"kubelot.dev/test/e2e/kit"
)

// upgrades are streams that a client opens in order.
var upgrades = map[string]struct{ method, path, headers string }{
	"exec, WebSocket v5": {
		"GET", "/exec/$NS/open/app?command=cat&input=1&output=1",
		"Upgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
	},
	"exec, WebSocket v4": {
		"GET", "/exec/$NS/open/app?command=cat&input=1&output=1",
		"Upgrade: websocket\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n",
	},
	"exec, SPDY": {
		"POST", "/exec/$NS/open/app?command=cat&input=1&output=1",
		"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
	},
	"port-forward, SPDY": {
		"POST", "/portForward/$NS/open",
		"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n",
	},
	"port-forward, its tunnel": {
		"GET", "/portForward/$NS/open",
		"Upgrade: websocket\r\nSec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n",
	},
	"port-forward, plain ports": {
		"GET", "/portForward/$NS/open?port=80",
		"Upgrade: websocket\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n",
	},
}

// nonsense is what no client says after that: noise, frames that promise more than anybody has memory for, channels
// that there are not, frames that aren't masked, and a header without its rest.
func nonsense() map[string][]byte {
	noise, dice := make([]byte, 64<<10), rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(dice.Uint32())
	}
	return map[string][]byte{
		"noise":           noise,
		"endless frame":   {0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 0},
		"no such channel": {0x82, 0x82, 0, 0, 0, 0, 200, 'x'},
		"not masked":      {0x82, 0x02, 0, 'x'},
		"endless SPDY":    {0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff, 0, 0, 0, 1},
		"half a header":   {0x82},
	}
}

// Streams that become nonsense end for those who talk it, and for nobody else.
func TestMalformedStreams(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("open", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("open")
	config, err := bed.ControlPlane.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	before, err := bed.Daemon("api")
	if err != nil {
		t.Fatal(err)
	}
	for name, upgrade := range upgrades {
		for what, data := range nonsense() {
			t.Run(name+"/"+what, func(t *testing.T) {
				conn := upgraded(t, config, upgrade.method, strings.ReplaceAll(upgrade.path, "$NS", ns.Name), upgrade.headers)
				if _, err := conn.Write(data); err == nil {
					// The client's end of the connection is the end of what it says.
					_ = conn.CloseWrite()
				}
				if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
					t.Error("the connection stays open")
				}
			})
		}
	}
	if out, err := try(t, ns, nil, "", "exec", "open", "--", "echo", "well"); err != nil || out != "well\n" {
		t.Errorf("kubectl exec afterwards: %v, %q", err, out)
	}
	if now, err := bed.Daemon("api"); err != nil || now != before {
		t.Errorf("kubelot-api was process %d and is %d: %v", before, now, err)
	}
}

// upgraded is a connection to the node that has become a stream.
func upgraded(t *testing.T, config *rest.Config, method, path, headers string) *tls.Conn {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig = &tls.Config{
		InsecureSkipVerify: true, Certificates: tlsConfig.Certificates,
		GetClientCertificate: tlsConfig.GetClientCertificate,
	}
	address := net.JoinHostPort(bed.Bed.Gateway.String(), strconv.Itoa(bed.Node.Port))
	conn, err := (&tls.Dialer{Config: tlsConfig}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(kit.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nSec-WebSocket-Version: "+
		"13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n", method, path, address, headers); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s %s: %v", method, path, response)
	}
	return conn.(*tls.Conn)
}
