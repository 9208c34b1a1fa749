package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"

	"kubelot.dev/daemon/oneline"
)

const (
	// callLimit is how long a call may take: the kubelet's 2 minutes, less the time to say so before the worker is
	// stopped.
	callLimit = 2*time.Minute - 5*time.Second
	// askLimit bounds a question that changes nothing.
	askLimit = 30 * time.Second
	// maxAnswer bounds what a driver may answer, maxError what of its errors is passed on.
	maxAnswer = 4 << 20
	maxError  = 1 << 10
	// shortestSecret is the length of the shortest secret that is looked for in errors: shorter ones are in every text.
	shortestSecret = 4
	// maxCapabilities bounds the list of what a driver can do.
	maxCapabilities = 256
	// reconnect bounds the pause before a driver that went away is dialed again.
	reconnect = time.Second
)

// Client is the connection to one instance of a driver.
type Client struct {
	conn *grpc.ClientConn
	// Node has the calls.
	Node csiapi.NodeClient
	// can is asked for once, and again when the driver may be another process: ends counts the reasons for that, and of
	// was that number when it was asked for.
	asking chan struct{} // holds one token
	can    *Capabilities
	of     int64
	ends   atomic.Int64

	mu sync.Mutex
	// users is how many have acquired the client; the last closes one that is retired.
	users   int
	retired bool
}

// KeyTokens is where a driver finds the tokens of a pod's service account.
const KeyTokens = "csi.storage.k8s.io/serviceAccount.tokens"

// Capabilities are what a driver can do (NodeGetCapabilities).
type Capabilities struct {
	Stage, MountGroup, SingleNodeMultiWriter, Expand, Stats bool
}

// dial makes the client of a driver. It doesn't connect: the first call does. watch is told of each call.
func dial(endpoint string, watch grpc.UnaryClientInterceptor) (*Client, error) {
	c := &Client{asking: make(chan struct{}, 1)}
	c.asking <- struct{}{}
	conn, err := grpc.NewClient("passthrough:///csi",
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", endpoint)
			if err != nil {
				return nil, err
			}
			return followed{conn, c.Forget}, nil
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnect / 10, Multiplier: 1.6, Jitter: 0.1, MaxDelay: reconnect},
			MinConnectTimeout: 5 * time.Second, // the machine may stand still for a while
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithChainUnaryInterceptor(watch, c.plain),
	)
	if err != nil {
		return nil, fmt.Errorf("CSI driver at %q: %w", endpoint, err)
	}
	c.conn, c.Node = conn, csiapi.NewNodeClient(conn)
	return c, nil
}

// followed is a connection of whose end somebody is told: what comes next may be another process, though it is
// registered as before.
type followed struct {
	net.Conn
	ended func()
}

func (f followed) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if err != nil {
		f.ended()
	}
	return n, err
}

func (c *Client) acquire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
}

// Release ends the use of a client, which may be nil.
func (c *Client) Release() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 && c.retired {
		_ = c.conn.Close()
	}
}

// retire closes the connection when nobody uses it any more.
func (c *Client) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired = true; c.users == 0 {
		_ = c.conn.Close()
	}
}

// Forget has the driver asked again what it can do.
func (c *Client) Forget() { c.ends.Add(1) }

// plain makes what a driver says of an error a text of one line and bounded length. The request is in no error, and
// what a driver repeats of its secrets isn't either.
//
//nolint:revive // the many arguments are those of a grpc.UnaryClientInterceptor
func (c *Client) plain(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, options...)
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	if s.Code() == codes.Unavailable {
		c.Forget() // the driver that comes back may be another version
	}
	if s.Code() == codes.Canceled || s.Code() == codes.DeadlineExceeded {
		if why := context.Cause(ctx); why != nil && !errors.Is(why, ctx.Err()) {
			return status.Error(s.Code(), Line(why.Error()))
		}
	}
	return status.Error(s.Code(), Line(redact(s.Message(), req)))
}

// redact blots out the secrets of a request.
func redact(text string, request any) string {
	var words []string
	if r, ok := request.(interface{ GetSecrets() map[string]string }); ok {
		for _, value := range r.GetSecrets() {
			words = append(words, value)
		}
		words = append(words, tokensIn(r.GetSecrets()[KeyTokens])...)
	}
	if r, ok := request.(interface{ GetVolumeContext() map[string]string }); ok {
		words = append(words, tokensIn(r.GetVolumeContext()[KeyTokens])...)
	}
	// The longest first: one may be a part of another.
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	for _, word := range words {
		if len(word) >= shortestSecret {
			text = strings.ReplaceAll(text, word, "***")
		}
	}
	return text
}

// tokensIn are the tokens of service accounts in the form in which drivers get them, and that form.
func tokensIn(text string) []string {
	if text == "" {
		return nil
	}
	words := []string{text}
	var tokens map[string]authenticationv1.TokenRequestStatus
	if json.Unmarshal([]byte(text), &tokens) == nil {
		for _, token := range tokens {
			words = append(words, token.Token)
		}
	}
	return words
}

// Line makes a text of a driver one of one line and bounded length.
func Line(text string) string { return oneline.Of(text, maxError) }

// Known are the capabilities that the driver told last; nil while it hasn't been asked, or is being asked.
func (c *Client) Known() *Capabilities {
	select {
	case <-c.asking:
		defer func() { c.asking <- struct{}{} }()
		return c.can
	default:
		return nil
	}
}

// Capabilities asks what the driver can do.
func (c *Client) Capabilities(ctx context.Context) (*Capabilities, error) {
	select {
	case <-c.asking:
		defer func() { c.asking <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ends := c.ends.Load()
	if c.can != nil && c.of == ends {
		return c.can, nil
	}
	ctx, cancel := AskContext(ctx)
	defer cancel()
	answer, err := c.Node.NodeGetCapabilities(ctx, &csiapi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask what the driver can do (NodeGetCapabilities): %w", err)
	}
	list := answer.GetCapabilities()
	if len(list) > maxCapabilities {
		return nil, fmt.Errorf("the driver names %d capabilities (NodeGetCapabilities)", len(list))
	}
	has := map[csiapi.NodeServiceCapability_RPC_Type]bool{}
	for _, entry := range list {
		has[entry.GetRpc().GetType()] = true
	}
	c.of, c.can = ends, &Capabilities{
		Stage:                 has[csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME],
		MountGroup:            has[csiapi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP],
		SingleNodeMultiWriter: has[csiapi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
		Expand:                has[csiapi.NodeServiceCapability_RPC_EXPAND_VOLUME],
		Stats:                 has[csiapi.NodeServiceCapability_RPC_GET_VOLUME_STATS],
	}
	return c.can, nil
}
