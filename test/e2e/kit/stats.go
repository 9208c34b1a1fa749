package kit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Page reads a page of a daemon's own socket, such as /metrics or stats' /stats/summary, as soon as the daemon serves
// it.
func (b *Bed) Page(t testing.TB, daemon, path string) (data []byte) {
	t.Helper()
	Eventually(t, path+" of kubelot-"+daemon, func() (err error) {
		data, err = b.TryPage(t.Context(), daemon, path)
		return err
	})
	return data
}

// TryPage is Page for a test that asks again.
func (b *Bed) TryPage(ctx context.Context, daemon, path string) ([]byte, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.Bed.Path("run/metrics/"+daemon+".sock"))
	}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+daemon+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s of kubelot-%s: %s: %s", path, daemon, response.Status, data)
	}
	return data, err
}
