#!/bin/sh
# Reads, changes nothing. Arguments: the private key and the certificate that DKMS shall sign modules with. Prints what is wrong, or nothing.
export LC_ALL=C
key=$1 certificate=$2

public_key() { # of the certificate: DER, or PEM
  openssl x509 -noout -pubkey -inform DER -in "$1" 2>/dev/null || openssl x509 -noout -pubkey -in "$1" 2>/dev/null
}

if ! command -v openssl >/dev/null; then echo "openssl is not installed"; exit 0; fi
for file in "$key" "$certificate"; do
  if [ ! -f "$file" ]; then echo "there is no file $file on the host"; exit 0; fi
done
# -L: what the name leads to. 077: neither group nor others.
if [ -n "$(find -L "$key" -maxdepth 0 \( ! -user root -o -perm /077 \))" ]; then
  echo "$key must be root's, and nobody else may read it (chown root: $key; chmod 600 $key)"; exit 0
fi
if [ -n "$(find -L "$certificate" -maxdepth 0 \( ! -user root -o -perm /022 \))" ]; then
  echo "$certificate must be root's, and nobody else may change it (chown root: $certificate; chmod 644 $certificate)"; exit 0
fi
of_key=$(openssl pkey -pubout -in "$key" -passin pass: </dev/null 2>/dev/null)
of_certificate=$(public_key "$certificate")
if [ -z "$of_key" ]; then echo "$key is no private key without a password, which DKMS needs"; exit 0; fi
if [ -z "$of_certificate" ]; then echo "$certificate is no certificate (DER)"; exit 0; fi
if [ "$of_key" != "$of_certificate" ]; then echo "$key and $certificate do not belong together: their public keys differ"; exit 0; fi

for variable in /sys/firmware/efi/efivars/SecureBoot-*; do
  [ -r "$variable" ] || continue
  [ "$(od -An -tu1 -j4 -N1 "$variable" | tr -d ' ')" = 1 ] || continue
  if ! command -v mokutil >/dev/null; then echo "mokutil is not installed, so whether $certificate is enrolled cannot be known"; exit 0; fi
  if ! mokutil --test-key "$certificate" 2>/dev/null | grep -q 'already enrolled'; then
    echo "Secure Boot is on and $certificate is not enrolled (mokutil --import $certificate, reboot, confirm it at the machine's console)"
  fi
done
