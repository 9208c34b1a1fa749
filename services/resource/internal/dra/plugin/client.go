package plugin

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/oneline"
	"kubelot.dev/services/resource/internal/dra/claims"
)

const (
	// callLimit is how long a driver may take for a call.
	callLimit = 45 * time.Second
	// maxAnswer bounds what a driver may answer, maxError what of its errors is passed on.
	maxAnswer = 4 << 20
	maxError  = 1 << 10
	// maxDevices bounds the devices of a claim, maxName the length of what names one, and maxNames how many CDI devices or
	// requests one may name.
	maxDevices = 1024
	maxName    = 1024
	maxNames   = 256
	// reconnect bounds the pause before a plugin that went away is dialed again.
	reconnect = time.Second
)

// Dialer connects to an endpoint; the one of the product is Unix.
type Dialer func(ctx context.Context, endpoint string) (net.Conn, error)

// Unix connects to a unix socket.
func Unix(ctx context.Context, endpoint string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", endpoint)
}

// Client is the connection to one plugin of a driver. Besides the calls, all of it belongs to the owner of Drivers.
type Client struct {
	driver string
	at     topic.PluginEndpoint
	conn   *grpc.ClientConn
	api    drav1.DRAPluginClient
	// stop ends what listens to the plugin.
	stop      context.CancelFunc
	connected bool
	// reports is true once it has reported the health of devices.
	reports bool
	// users is how many calls are under way; the last one closes a client that is retired.
	users   int
	retired bool
}

// service is the first of the plugin's services that kubelot speaks too.
func service(versions []string) (string, error) {
	i := slices.IndexFunc(versions, func(v string) bool {
		return v == drav1.DRAPluginService || v == drav1beta1.DRAPluginService
	})
	if i < 0 {
		return "", fmt.Errorf("none of its services %q is %s or %s", versions, drav1.DRAPluginService,
			drav1beta1.DRAPluginService)
	}
	return versions[i], nil
}

// newClient makes the client of a plugin. It doesn't connect.
func newClient(driver string, at topic.PluginEndpoint, dial Dialer, observe Observer) (*Client, error) {
	speaks, err := service(at.Versions)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///dra",
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, at.Endpoint) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		// A connection that is idle is still one: its end says that the driver is away.
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnect / 10, Multiplier: 1.6, Jitter: 0.1, MaxDelay: reconnect},
			MinConnectTimeout: 5 * time.Second, // the machine may stand still for a while
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithUnaryInterceptor(interceptor(driver, observe)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", at.Endpoint, err)
	}
	c := &Client{driver: driver, at: at, conn: conn, api: drav1.NewDRAPluginClient(conn)}
	if speaks == drav1beta1.DRAPluginService {
		c.api = drav1beta1.V1Beta1ClientWrapper{DRAPluginClient: drav1beta1.NewDRAPluginClient(conn)}
	}
	return c, nil
}

// retire closes the connection when nobody uses it any more.
func (c *Client) retire() {
	c.stop()
	if c.retired = true; c.users == 0 {
		_ = c.conn.Close()
	}
}

// interceptor counts calls, and makes of what a driver says of an error a text of one line and bounded length.
func interceptor(driver string, observe Observer) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, conn, options...)
		code, text := reason(ctx, status.Convert(err))
		observe(driver, method, code.String(), time.Since(began))
		if err == nil {
			return nil
		}
		return status.Error(code, line(text))
	}
}

// reason is why a call has failed.
func reason(ctx context.Context, s *status.Status) (codes.Code, string) {
	if s.Code() != codes.Canceled && s.Code() != codes.DeadlineExceeded {
		return s.Code(), s.Message()
	}
	// The driver knows the deadline too. It may be the first to say that it is over, in its own words.
	if end, limited := ctx.Deadline(); limited && time.Until(end) < time.Second {
		return codes.DeadlineExceeded, fmt.Sprintf("the driver has not answered for %s", callLimit)
	}
	if why := context.Cause(ctx); why != nil {
		return s.Code(), why.Error()
	}
	return s.Code(), s.Message()
}

// line makes a text of a driver one of one line and bounded length.
func line(text string) string { return oneline.Of(text, maxError) }

// Question is a claim that a driver is asked about.
type Question struct {
	types.NamespacedName
	UID types.UID
}

// Call asks the driver about all the claims: call is claims.CallPrepare or claims.CallUnprepare.
func (c *Client) Call(ctx context.Context, call string, about []Question) (claims.Answers, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	asked := make([]*drav1.Claim, 0, len(about))
	for _, q := range about {
		asked = append(asked, &drav1.Claim{Namespace: q.Namespace, Uid: string(q.UID), Name: q.Name})
	}
	out := make(claims.Answers, len(asked))
	if call == claims.CallUnprepare {
		answer, err := c.api.NodeUnprepareResources(ctx, &drav1.NodeUnprepareResourcesRequest{Claims: asked})
		for uid, a := range answer.GetClaims() {
			out[types.UID(uid)] = claims.Answer{Error: line(a.GetError())}
		}
		return out, err
	}
	answer, err := c.api.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{Claims: asked})
	for uid, a := range answer.GetClaims() {
		out[types.UID(uid)] = preparedBy(a)
	}
	return out, err
}

func preparedBy(a *drav1.NodePrepareResourceResponse) claims.Answer {
	if text := a.GetError(); text != "" {
		return claims.Answer{Error: line(text)}
	}
	if n := len(a.GetDevices()); n > maxDevices {
		return claims.Answer{Error: fmt.Sprintf("the driver names %d devices, which are too many", n)}
	}
	var out claims.Answer
	for _, d := range a.GetDevices() {
		if problem := strange(d); problem != "" {
			return claims.Answer{Error: problem}
		}
		out.Devices = append(out.Devices, claims.Device{
			Pool: d.GetPoolName(), Name: d.GetDeviceName(), ShareID: d.GetShareId(), Requests: d.GetRequestNames(),
			CDI: d.GetCdiDeviceIds(),
		})
	}
	return out
}

// strange says why the device can't be one. What a driver names goes into files, the API and the container runtime.
func strange(d *drav1.Device) string {
	names := append([]string{d.GetPoolName(), d.GetDeviceName(), d.GetShareId()}, d.GetRequestNames()...)
	names = append(names, d.GetCdiDeviceIds()...)
	if len(d.GetRequestNames()) > maxNames || len(d.GetCdiDeviceIds()) > maxNames {
		return fmt.Sprintf("the driver's device %.100q has %d requests and %d CDI devices, which are too many",
			d.GetDeviceName(), len(d.GetRequestNames()), len(d.GetCdiDeviceIds()))
	}
	for _, name := range names {
		if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Sprintf("the driver says %.100q of a device, which can't be a name", name)
		}
	}
	if slices.Contains(d.GetCdiDeviceIds(), "") {
		return fmt.Sprintf("the driver names an empty CDI device for %.100q", d.GetDeviceName())
	}
	return ""
}
