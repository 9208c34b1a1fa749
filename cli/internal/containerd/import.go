package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	streamingapi "github.com/containerd/containerd/api/services/streaming/v1"
	transferapi "github.com/containerd/containerd/api/services/transfer/v1"
	"github.com/containerd/containerd/api/types"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// chunk is how much of an archive is sent at once, as containerd's own client does.
const chunk = 32 << 10

// saved is the event with which containerd names an image that it has imported.
const saved = "saved"

// Import has containerd load the images of an OCI or docker archive, which may be compressed, for the platform of this
// node, and unpack them. It returns their names. base names those of which the archive only says a tag.
func (c *Client) Import(ctx context.Context, archive io.Reader, base string) ([]string, error) {
	ctx, cancel := context.WithCancelCause(inNamespace(ctx))
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel(nil)
	data, dataID, err := c.stream(ctx, "import")
	if err != nil {
		return nil, fmt.Errorf("import: %w", plain(err))
	}
	progress, progressID, err := c.stream(ctx, "progress")
	if err != nil {
		return nil, fmt.Errorf("import: %w", plain(err))
	}
	work.Go(func() {
		if err := send(data, archive); err != nil {
			cancel(fmt.Errorf("read the archive: %w", err))
		}
	})
	var names []string
	told := make(chan struct{})
	work.Go(func() {
		defer close(told)
		names = savedNames(progress)
	})
	req, err := request(dataID, progressID, base)
	if err != nil {
		return nil, err
	}
	if _, err = transferapi.NewTransferClient(c.conn).Transfer(ctx, req); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("import: %w", plain(err))
	}
	<-told // containerd ends the stream together with the call
	return names, nil
}

// request asks for the transfer of what comes on one stream into the image store, with reports on the other.
func request(data, progress, base string) (*transferapi.TransferRequest, error) {
	platform := &types.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	source, err := packed(&transfertypes.ImageImportStream{Stream: data})
	if err != nil {
		return nil, err
	}
	into, err := packed(&transfertypes.ImageStore{
		Platforms:       []*types.Platform{platform},
		Unpacks:         []*transfertypes.UnpackConfiguration{{Platform: platform}},
		ExtraReferences: []*transfertypes.ImageReference{{Name: base, IsPrefix: true, AllowOverwrite: true}},
	})
	if err != nil {
		return nil, err
	}
	return &transferapi.TransferRequest{
		Source: source, Destination: into, Options: &transferapi.TransferOptions{ProgressStream: progress},
	}, nil
}

// packed wraps a message as containerd does: the type's name has no prefix, and containerd compares it as it is.
func packed(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}, err
}

// stream opens a stream that calls can refer to by its ID.
func (c *Client) stream(ctx context.Context, kind string) (streamingapi.Streaming_StreamClient, string, error) {
	id := "kubelot-" + kind + "-" + rand.Text()
	stream, err := streamingapi.NewStreamingClient(c.conn).Stream(ctx)
	if err != nil {
		return nil, "", err
	}
	init, err := packed(&streamingapi.StreamInit{ID: id})
	if err == nil {
		err = stream.Send(init)
	}
	if err == nil || errors.Is(err, io.EOF) {
		_, err = stream.Recv() // says why, if the stream was refused
	}
	return stream, id, err
}

// send sends an archive, each time as much as containerd has said that it can take. Only what is wrong with the archive
// is an error: what is wrong with containerd is in its answer to the call.
func send(stream streamingapi.Streaming_StreamClient, archive io.Reader) error {
	defer stream.CloseSend() //nolint:errcheck // the call's answer counts
	window, buffer := 0, make([]byte, chunk)
	for {
		for window <= 0 {
			message, err := stream.Recv()
			if err != nil {
				return nil
			}
			var update transfertypes.WindowUpdate
			if message.UnmarshalTo(&update) == nil {
				window += int(update.GetUpdate())
			}
		}
		n, err := archive.Read(buffer[:min(window, chunk)])
		if n > 0 {
			data, packErr := packed(&transfertypes.Data{Data: buffer[:n]})
			if packErr != nil || stream.Send(data) != nil {
				return packErr
			}
			window -= n
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// savedNames are the names of the images that containerd reports, until it ends the stream.
func savedNames(stream streamingapi.Streaming_StreamClient) []string {
	var names []string
	for {
		message, err := stream.Recv()
		if err != nil {
			return names
		}
		var progress transfertypes.Progress
		if message.UnmarshalTo(&progress) == nil && progress.GetEvent() == saved {
			names = append(names, progress.GetName())
		}
	}
}
