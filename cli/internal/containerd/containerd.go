// Package containerd asks containerd for what CRI has no call for: pins of images, and the import of archives. It uses
// containerd's own API on the socket that also serves CRI.
//
// The generated API alone is linked. containerd's client would bring some forty modules into the executable that all
// daemons share, for two calls.
//
// # Writes
//
// The label of pins on images of CRI's namespace, and images.
//
// # Guarantees
//
// Nothing outlives a call. An image is imported as a whole, or not at all.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// RuntimeName is what containerd calls itself in CRI.
const RuntimeName = "containerd"

// What containerd and its CRI plugin have agreed on.
const (
	namespaceHeader = "containerd-namespace"
	criNamespace    = "k8s.io"
	pinLabel        = "io.cri-containerd.pinned"
	pinned          = "pinned"
)

// Client is a connection to containerd.
type Client struct{ conn *grpc.ClientConn }

// Dial returns a client of the containerd behind a CRI endpoint. It connects with the first call.
func Dial(endpoint string) (*Client, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("containerd at %s: want a unix socket such as unix:///run/containerd/containerd.sock",
			endpoint)
	}
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", endpoint, err)
	}
	return &Client{conn: conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// inNamespace has a call work on the images that CRI sees.
func inNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, namespaceHeader, criNamespace)
}

// Pin sets or takes the label that keeps an image from garbage collection, on all of the image's names: a pull replaces
// the record of one name. It is an error if containerd has none of the names.
func (c *Client) Pin(ctx context.Context, names []string, on bool) error {
	value := "" // an empty value removes the label
	if on {
		value = pinned
	}
	service, done := imagesapi.NewImagesClient(c.conn), 0
	for _, name := range names {
		_, err := service.Update(inNamespace(ctx), &imagesapi.UpdateImageRequest{
			// Because of the mask the target isn't used. But containerd (2.4.2) ends with a panic where there is none.
			Image: &imagesapi.Image{
				Name: name, Labels: map[string]string{pinLabel: value}, Target: &types.Descriptor{},
			},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels." + pinLabel}},
		})
		switch status.Code(err) {
		case codes.OK:
			done++
		case codes.NotFound:
		default:
			return fmt.Errorf("label image %s: %w", name, plain(err))
		}
	}
	if done == 0 {
		return fmt.Errorf("containerd has no image %s in its namespace %s", strings.Join(names, ", "), criNamespace)
	}
	return nil
}

// plain is the error without gRPC's wrapping.
func plain(err error) error {
	switch status.Code(err) {
	case codes.Unimplemented:
		return fmt.Errorf("this containerd can't do that: it takes version 1.7 or newer (%s)", status.Convert(err).Message())
	case codes.Unavailable:
		return fmt.Errorf("containerd doesn't answer: %s", status.Convert(err).Message())
	}
	if s, ok := status.FromError(err); ok {
		return errors.New(s.Message())
	}
	return err
}
