package guest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// The API server's proxy connects to the address that it is asked for, and says why it can't.
func TestTunnels(t *testing.T) {
	echo, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		if conn, err := echo.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
		}
	}()
	proxy := httptest.NewServer(tunnels(func(ctx context.Context, address string) (net.Conn, error) {
		if address != "10.88.0.7:80" {
			return nil, errors.New("no way to " + address)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", echo.Addr().String())
	}))
	defer proxy.Close()
	ask := func(request string) (status string, conn net.Conn, from *bufio.Reader) {
		conn, err = new(net.Dialer).DialContext(t.Context(), "tcp", proxy.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		from = bufio.NewReader(conn)
		answer, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		status = answer.Status
		if answer.StatusCode != http.StatusOK {
			why, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			status += ": " + string(why)
		}
		return status, conn, from
	}
	const header = " HTTP/1.1\r\nHost: x\r\n\r\n"
	if status, _, _ := ask("GET /" + header); status != "405 Method Not Allowed: want CONNECT\n" {
		t.Errorf("GET: %s", status)
	}
	status, _, _ := ask("CONNECT 10.88.0.8:80" + header)
	if status != "502 Bad Gateway: no way to 10.88.0.8:80\n" {
		t.Errorf("an address without a way: %s", status)
	}
	// The first words may come with the request.
	status, conn, from := ask("CONNECT 10.88.0.7:80" + header + "early")
	if status != "200 OK" {
		t.Fatal(status)
	}
	if _, err := io.WriteString(conn, " late\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := from.ReadString('\n'); line != "early late\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestPodsNetwork(t *testing.T) {
	if config, err := os.ReadFile("files/cni.conflist"); err != nil || !strings.Contains(string(config), pods.String()) {
		t.Errorf("%s isn't the network of files/cni.conflist: %v", pods, err)
	}
}
