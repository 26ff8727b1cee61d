package belay;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** Reads the files of TLS. */
final class Pem {
    private static final Pattern KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----([^-]*)-----END PRIVATE KEY-----");
    private static final List<String> KINDS = List.of("EC", "RSA", "EdDSA");
    private static final char[] NO_PASSWORD = {};

    private Pem() {}

    /** {@code ca} null: the CAs of the system; {@code cert} and {@code key} null: none. */
    static SSLContext context(Path ca, Path cert, Path key) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(cert == null && key == null ? null : proof(cert, key), ca == null ? null : trust(ca), null);
            return context;
        } catch (IOException | GeneralSecurityException e) {
            throw new IllegalArgumentException("TLS: " + e.getMessage(), e);
        }
    }

    private static TrustManager[] trust(Path ca) throws IOException, GeneralSecurityException {
        KeyStore store = emptyStore();
        for (Certificate certificate : certificates(ca)) {
            store.setCertificateEntry("ca " + store.size(), certificate);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private static KeyManager[] proof(Path cert, Path key) throws IOException, GeneralSecurityException {
        if (cert == null || key == null) {
            throw new IllegalArgumentException("TLS: a certificate needs its key, and a key its certificate");
        }
        KeyStore store = emptyStore();
        store.setKeyEntry("key", privateKey(key), NO_PASSWORD, certificates(cert));
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, NO_PASSWORD);
        return factory.getKeyManagers();
    }

    private static KeyStore emptyStore() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Certificate[] certificates(Path path) throws IOException, GeneralSecurityException {
        Certificate[] all = CertificateFactory.getInstance("X.509")
                .generateCertificates(new ByteArrayInputStream(Files.readAllBytes(path))).toArray(Certificate[]::new);
        if (all.length == 0) {
            throw new IllegalArgumentException("TLS: " + path + " has no certificate");
        }
        return all;
    }

    private static PrivateKey privateKey(Path path) throws IOException, GeneralSecurityException {
        Matcher pem = KEY.matcher(Files.readString(path));
        if (!pem.find()) {
            throw new IllegalArgumentException("TLS: " + path + " has no private key in PKCS #8;"
                    + " openssl pkcs8 -topk8 -nocrypt makes one");
        }
        PKCS8EncodedKeySpec spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem.group(1)));
        for (String kind : KINDS) {
            try {
                return KeyFactory.getInstance(kind).generatePrivate(spec);
            } catch (InvalidKeySpecException e) {
                continue; // it is of another kind
            }
        }
        throw new IllegalArgumentException("TLS: " + path + " is of none of the kinds " + KINDS);
    }
}
