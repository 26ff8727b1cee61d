package belay;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** A connection to one server. One thread reads from it; a thread of its own writes. */
final class Wire {
    private interface Sink {
        void write(byte[] bytes) throws IOException;
    }

    final Address address;

    private Closeable below; // of TLS; else the same
    private Resp in;
    private Sink out;
    private final ByteArrayOutputStream unsent = new ByteArrayOutputStream();
    private boolean isClosing;
    private boolean isReset;

    Wire(Address address) {
        this.address = address;
    }

    /** Waits as long as the server lets it; {@link #reset} ends that. */
    void connect(SSLContext tls) throws IOException {
        try {
            if (address.path() != null) {
                connectHere();
            } else {
                connectTo(InetAddress.getAllByName(address.host()), tls);
            }
        } catch (ConnectException e) {
            throw new ConnectException(address.text() + ": " + e.getMessage() + "; is a server running there?");
        } catch (IOException e) {
            throw new IOException(address.text() + ": " + e, e);
        }
    }

    private void connectHere() throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        use(channel);
        channel.connect(UnixDomainSocketAddress.of(address.path()));
        in = new Resp((into, from, length) -> channel.read(ByteBuffer.wrap(into, from, length)));
        out = bytes -> {
            for (ByteBuffer rest = ByteBuffer.wrap(bytes); rest.hasRemaining();) {
                channel.write(rest);
            }
        };
    }

    private void connectTo(InetAddress[] hosts, SSLContext tls) throws IOException {
        Socket socket = firstOf(hosts);
        socket.setTcpNoDelay(true);
        if (address.isTls()) {
            socket = encrypted(socket, tls);
        }
        in = new Resp(socket.getInputStream()::read);
        out = socket.getOutputStream()::write;
    }

    private Socket firstOf(InetAddress[] hosts) throws IOException {
        IOException failure = null;
        for (InetAddress host : hosts) {
            Socket socket = new Socket();
            use(socket);
            try {
                socket.connect(new InetSocketAddress(host, address.port()));
                return socket;
            } catch (IOException e) {
                socket.close();
                failure = e;
            }
        }
        throw failure;
    }

    /** The server must prove that it is the host of its address. */
    private Socket encrypted(Socket plain, SSLContext tls) throws IOException {
        SSLSocket socket =
                (SSLSocket) tls.getSocketFactory().createSocket(plain, address.host(), address.port(), true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        return socket;
    }

    private synchronized void use(Closeable socket) throws IOException {
        below = socket;
        if (isReset) {
            socket.close();
            throw new SocketException("it took too long");
        }
    }

    Object read() throws IOException {
        try {
            return in.read();
        } catch (IOException e) {
            throw new IOException(address.text() + ": " + e.getMessage(), e);
        }
    }

    /** What was sent before this leaves in one go. */
    void startWriting() {
        Core.thread("writer", this::write);
    }

    synchronized void send(byte[] bytes) {
        unsent.writeBytes(bytes);
        notifyAll();
    }

    private synchronized byte[] nextBatch() throws InterruptedException {
        while (unsent.size() == 0 && !isClosing) {
            wait();
        }
        byte[] batch = unsent.toByteArray();
        unsent.reset();
        return batch;
    }

    private void write() {
        try {
            for (byte[] batch = nextBatch(); batch.length > 0; batch = nextBatch()) {
                out.write(batch);
            }
            below.close();
        } catch (IOException e) {
            reset(); // whoever reads is told
        } catch (InterruptedException e) {
            throw new AssertionError("nobody knows this thread", e);
        }
    }

    /** The last word, behind what was sent: the server frees what belongs to this connection. */
    synchronized void close() {
        isClosing = true;
        notifyAll();
    }

    /** Leaves the server because of a failure: unlike a close, a reset frees nothing there. */
    synchronized void reset() {
        isReset = true;
        isClosing = true;
        unsent.reset();
        notifyAll();
        try {
            if (below instanceof Socket socket && !socket.isClosed()) {
                socket.setSoLinger(true, 0);
            }
            if (below != null) {
                below.close();
            }
        } catch (IOException e) {
            return; // it is broken already
        }
    }
}
