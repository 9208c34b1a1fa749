package shutdown

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"kubelot.dev/test/e2e/kit"
)

// proxy is between the node and the API server. While it is slow, no request gets through; none fails either.
type proxy struct {
	listener net.Listener
	to       string
	wait     sync.WaitGroup

	mu    sync.Mutex
	goes  *sync.Cond
	slow  bool
	over  bool
	conns []net.Conn
}

// startProxy returns the proxy and a kubeconfig of the node that leads to it.
func startProxy(t *testing.T, b *kit.Bed) (p *proxy, kubeconfig string) {
	t.Helper()
	path, err := b.ControlPlane.NodeKubeconfig(kit.NodeName)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p = &proxy{}
	p.goes = sync.NewCond(&p.mu)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil {
			t.Fatal(err)
		}
		p.to, server.Host = server.Host, p.listener.Addr().String()
		cluster.Server, cluster.TLSServerName = server.String(), server.Hostname()
	}
	kubeconfig = b.Bed.Path("proxied.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	p.wait.Go(p.accept)
	t.Cleanup(p.stop)
	return p, kubeconfig
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wait.Go(func() { p.pipe(server, client) })
		p.wait.Go(func() {
			_, _ = io.Copy(client, server) // it ends with either
			client.Close()
		})
	}
}

// pipe passes on what the client sends, once the proxy isn't slow.
func (p *proxy) pipe(to, from net.Conn) {
	defer to.Close()
	data := make([]byte, 64<<10)
	for {
		n, err := from.Read(data)
		p.mu.Lock()
		for p.slow && !p.over {
			p.goes.Wait()
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) setSlow(slow bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = slow
	p.goes.Broadcast()
}

func (p *proxy) stop() {
	p.listener.Close()
	p.mu.Lock()
	p.over = true
	p.goes.Broadcast()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wait.Wait()
}
