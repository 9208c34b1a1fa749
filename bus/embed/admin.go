package embed

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// admin is the bus's own user. Its key never leaves the process, nor does its connection.
type admin struct {
	server *server.Server
	pair   nkeys.KeyPair
	public string
}

func newAdmin() (*admin, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make the bus's own key: %w", err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make the bus's own key: %w", err)
	}
	return &admin{pair: pair, public: public}, nil
}

// ownTries is how often a connection within the process is tried. Client and server give each other two seconds for the
// handshake, and the machine may stand still meanwhile.
const ownTries = 5

// connect makes a connection within the process. It ends with its first failure, unless heals is among the options.
func (a *admin) connect(more ...nats.Option) (nc *nats.Conn, err error) {
	options := append([]nats.Option{
		nats.InProcessServer(a.server), nats.Nkey(a.public, a.pair.Sign), nats.Name("kubelot-bus"), nats.NoReconnect(),
	}, more...)
	for range ownTries {
		if nc, err = nats.Connect("", options...); err == nil {
			return nc, nil
		}
	}
	return nil, fmt.Errorf("connect to the embedded server: %w", err)
}

// ownPause is before the bus's own connection is made again.
const ownPause = 100 * time.Millisecond

// heals has a connection made again with its subscriptions, as often as it is lost. The server also cuts off its own
// process: after a freeze of the bus in the middle of a write, or when it is too far behind.
func heals(o *nats.Options) error {
	o.AllowReconnect, o.MaxReconnect, o.IgnoreAuthErrorAbort = true, -1, true
	o.ReconnectWait = ownPause
	return nil
}

// do works on the streams with a connection that exists only meanwhile.
func (a *admin) do(ctx context.Context, work func(context.Context, jetstream.JetStream) error) error {
	nc, err := a.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("connect to the embedded server: %w", err)
	}
	return work(ctx, js)
}
